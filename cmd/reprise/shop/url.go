// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// URL is a database that a flag names: sqlite:PATH, postgres://..., mysql://...
// It is made by ParseURL, and printed without user and password.
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

const urlHint = "say sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"

// connectTimeout bounds the making of one connection, unless the URL says otherwise.
const connectTimeout = 10 * time.Second

// ParseURL reads the URL of a database. postgresql:// is postgres://, and
// mariadb:// is mysql://. The parameters of a postgres:// URL are those of libpq,
// those of a mysql:// URL are those of go-sql-driver/mysql, and socket, which
// names a Unix socket. flag says where the URL was given. Errors are of
// exit.Usage; they repeat no part of a URL in which a password could stand.
func ParseURL(flag, raw string) (URL, error) {
	if !strings.Contains(raw, ":") {
		return URL{}, exit.Misused(urlHint, "%s %q has no scheme", flag, raw)
	}
	switch d, err := dialectOf(flag, raw); d {
	case sqliteDialect:
		return sqliteURL(flag, raw)
	case postgresDialect:
		return postgresURL(flag, raw)
	case mysqlDialect:
		return mysqlURL(flag, raw)
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
	case "postgres", "postgresql":
		return postgresDialect, nil
	case "mysql", "mariadb":
		return mysqlDialect, nil
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

// defaults are the parameters of a postgres:// URL that say nothing else.
var defaults = []struct{ name, value string }{
	{"connect_timeout", strconv.Itoa(int(connectTimeout.Seconds()))},
	{"application_name", "reprise"},
}

func postgresURL(flag, raw string) (URL, error) {
	c, err := pgconn.ParseConfig(raw)
	if err != nil {
		return URL{}, unreadable(flag, raw, "postgres://USER@HOST/DATABASE", err)
	}
	set := map[string]bool{"connect_timeout": c.ConnectTimeout > 0, "application_name": c.RuntimeParams["application_name"] != ""}
	dsn := raw
	for _, d := range defaults {
		if set[d.name] {
			continue
		}
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + d.name + "=" + d.value
	}
	return URL{dialect: postgresDialect, dsn: dsn, shown: serverName("postgres", c.Host, strconv.Itoa(int(c.Port)), c.Database)}, nil
}

// mysqlURL makes a DSN of go-sql-driver/mysql, which has a form of its own. Two
// settings are not left to the URL: the store sends several statements in one
// packet, and a value that does not fit a column has to be an error.
func mysqlURL(flag, raw string) (URL, error) {
	const form = "mysql://USER@HOST/DATABASE"
	u, err := url.Parse(raw)
	if err != nil {
		return URL{}, unreadable(flag, raw, form, err)
	}
	query := u.Query()
	socket := query.Get("socket")
	query.Del("socket")
	c, err := mysql.ParseDSN("/?" + query.Encode())
	if err != nil {
		return URL{}, unreadable(flag, raw, form, err)
	}
	c.DBName = strings.TrimPrefix(u.Path, "/")
	if c.DBName == "" || strings.Contains(c.DBName, "/") {
		return URL{}, exit.Misused("say "+form, "%s names no database", flag)
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	var shown string
	if socket != "" {
		c.Net, c.Addr = "unix", socket
		shown = serverName("mysql", socket, "", c.DBName)
	} else {
		host, port := cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306")
		c.Net, c.Addr = "tcp", net.JoinHostPort(host, port)
		shown = serverName("mysql", host, port, c.DBName)
	}
	c.MultiStatements, c.InterpolateParams = true, true
	c.Timeout = cmp.Or(c.Timeout, connectTimeout)
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params["sql_mode"] = cmp.Or(c.Params["sql_mode"], "CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")
	return URL{dialect: mysqlDialect, dsn: c.FormatDSN(), shown: shown}, nil
}

// serverName is how a database on a server is shown; port is empty for a socket.
func serverName(scheme, host, port, database string) string {
	if port != "" && !strings.HasPrefix(host, "/") {
		host = net.JoinHostPort(host, port)
	}
	return scheme + "://" + host + "/" + database
}

// unreadable is the error of a URL that can't be read. What a parser says of it
// repeats it, so it is said only where there is no password to repeat.
func unreadable(flag, raw, form string, err error) error {
	if strings.ContainsAny(raw, "@") || strings.Contains(raw, "password") {
		err = errors.New("it can't be read; what is wrong isn't shown, because it may hold a password")
	}
	return exit.Misused("say "+form, "%s: %w", flag, err)
}
