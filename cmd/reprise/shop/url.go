// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// URL is a database that a flag names. It is made by ParseURL, and printed without user and password.
type URL struct {
	dialect *dialect
	// dsn is what the database/sql driver takes.
	dsn string
	// shown is what people are told: never a secret.
	shown string
	// path is that of a SQLite file; empty for a server.
	path string
}

// String returns the URL without user, password and parameters.
func (u URL) String() string { return u.shown }

// Title is the kind of database, such as "SQLite".
func (u URL) Title() string { return u.dialect.title }

// Path returns the path of a SQLite file; empty for a server.
func (u URL) Path() string { return u.path }

const urlHint = "say sqlite:PATH, such as sqlite:shop.db"

// ParseURL reads the URL of a database. flag says where the URL was given. Errors
// are of exit.Usage; they repeat no part of a URL in which a password could stand.
func ParseURL(flag, raw string) (URL, error) {
	if !strings.Contains(raw, ":") {
		return URL{}, exit.Misused(urlHint, "%s %q has no scheme", flag, raw)
	}
	switch d, err := dialectOf(flag, raw); d {
	case sqliteDialect:
		return sqliteURL(flag, raw)
	default:
		return URL{}, err
	}
}

// dialectOf returns the dialect that a URL, or its scheme alone, names.
func dialectOf(flag, raw string) (*dialect, error) {
	scheme, _, _ := strings.Cut(raw, ":")
	switch scheme {
	case "sqlite":
		return sqliteDialect, nil
	}
	return nil, exit.Misused(urlHint, "%s: there is no driver for %q", flag, scheme)
}

// FilePath returns the file that the URL of a database names, where none but
// SQLite will do. The error is of exit.Usage.
func FilePath(flag, raw string) (string, error) {
	u, err := ParseURL(flag, raw)
	if err == nil && u.path == "" {
		err = exit.Misused("say sqlite:PATH", "%s: a provider keeps its charges in a file, and %s is a server", flag, u)
	}
	return u.path, err
}

func sqliteURL(flag, raw string) (URL, error) {
	const hint = "say sqlite:PATH, such as sqlite:shop.db or sqlite:/var/lib/shop.db"
	path := strings.TrimPrefix(raw, "sqlite:")
	switch {
	case strings.HasPrefix(path, "//"):
		return URL{}, exit.Misused(hint, "%s %q has slashes before its path, as for a host", flag, raw)
	case path == "":
		return URL{}, exit.Misused(hint, "%s %q names no file", flag, raw)
	}
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)"}}
	return URL{
		dialect: sqliteDialect, shown: path, path: path,
		dsn: "file:" + (&url.URL{Path: filepath.Clean(path)}).EscapedPath() + "?" + query.Encode(),
	}, nil
}
