// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/contract"
)

// Builtin is the value of Config.PSP and Config.Sink for what runs in the shop's
// own process.
const Builtin = "builtin"

// NoWait is the Config.Wait under which a repeat is answered 409 at once.
const NoWait = contract.NoWait

// Config says how a shop runs. The zero value of every field is sound.
type Config struct {
	// Listen is the address of the API. Defaults to 127.0.0.1:8080. Port 0 takes
	// a free one, here and below.
	Listen string
	// Admin is the address of the admin listener. Defaults to 127.0.0.1:8081.
	Admin string
	// DB names the database, as ParseURL reads it. Defaults to sqlite:shop.db.
	DB string
	// Driver is the database/sql driver that DB is opened with. Defaults to the one
	// that this program links for such a database.
	Driver string
	// PSP is the base URL of the payment provider. Defaults to Builtin: a
	// simulator in this process, with a SQLite file of its own.
	PSP string
	// PSPDB names the file of the builtin provider. Defaults to the name of the
	// database with .psp after it, and must be given if that is not a file.
	PSPDB string
	// PSPTimeout is how long one call of the provider may take. Defaults to 5 s.
	PSPTimeout time.Duration
	// Sink is where events go. Defaults to Builtin: the shop's own fulfilment.
	Sink string

	// Lease is how long a payment is left alone after a sign of life from the
	// process that works on it. Defaults to 30 s; at least 10 ms.
	Lease time.Duration
	// Wait is how long a repeat waits for an attempt in progress before it is
	// answered 409: whole milliseconds, or NoWait. Defaults to 2 s.
	Wait time.Duration
	// Retention is how long an answer is remembered, and Tombstone how long its
	// key is refused, both from completion, in whole seconds. Default to 24 h and
	// 30 days.
	Retention, Tombstone time.Duration
	// Drain is how long requests in flight may go on when the shop ends. Defaults
	// to 10 s.
	Drain time.Duration

	// DevAuth says whether the token dev-NAME stands for caller NAME. Defaults to
	// true if Listen is on loopback and there is no Tokens file.
	DevAuth *bool
	// Tokens is a file of lines TOKEN CALLER [revoked].
	Tokens string
	// AdminToken is demanded by the admin listener. Defaults to none, which is
	// refused unless Admin is on loopback.
	AdminToken string

	// Out receives one line of JSON for each listener. Defaults to nowhere.
	Out io.Writer
	// Logger defaults to slog.Default().
	Logger *slog.Logger

	// url is what DB says, and pspPath is the file of the builtin provider.
	url     URL
	pspPath string
}

// complete returns c with its defaults, or the first thing that is wrong with it.
func (c Config) complete() (Config, error) {
	for _, f := range []struct {
		field *string
		value string
	}{
		{&c.Listen, "127.0.0.1:8080"},
		{&c.Admin, "127.0.0.1:8081"},
		{&c.DB, "sqlite:shop.db"},
		{&c.PSP, Builtin},
		{&c.Sink, Builtin},
	} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	for _, f := range []struct {
		flag  string
		field *time.Duration
		value time.Duration
	}{
		{"--psp-timeout", &c.PSPTimeout, 5 * time.Second},
		{"--lease", &c.Lease, 30 * time.Second},
		{"--wait", &c.Wait, 2 * time.Second},
		{"--retention", &c.Retention, 24 * time.Hour},
		{"--tombstone", &c.Tombstone, 30 * 24 * time.Hour},
		{"--drain", &c.Drain, 10 * time.Second},
	} {
		if *f.field < 0 {
			return c, exit.Misused("give a duration such as 30s", "%s %v is negative", f.flag, *f.field)
		}
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := c.check(); err != nil {
		return c, err
	}
	var err error
	if c.url, err = ParseURL("--db", c.DB); err != nil {
		return c, err
	}
	if c.pspPath, err = c.providerFile(); err != nil {
		return c, err
	}
	if c.DevAuth == nil {
		on := c.Tokens == "" && loopback(c.Listen)
		c.DevAuth = &on
	}
	return c, nil
}

func (c Config) check() error {
	switch {
	case c.Lease < 10*time.Millisecond:
		return exit.Misused("give at least 10ms", "--lease %v is too short to be renewed in time", c.Lease)
	case c.Retention%time.Second != 0 || c.Tombstone%time.Second != 0:
		return exit.Misused("the contract document states them in seconds",
			"--retention %v and --tombstone %v must be whole seconds", c.Retention, c.Tombstone)
	case c.Tombstone < c.Retention:
		return exit.Misused("both count from completion; make --tombstone at least as long as --retention",
			"--tombstone %v is shorter than --retention %v", c.Tombstone, c.Retention)
	case c.Wait%time.Millisecond != 0 && c.Wait != NoWait:
		return exit.Misused("the contract document states it in milliseconds", "--wait %v must be whole milliseconds", c.Wait)
	case c.AdminToken == "" && !loopback(c.Admin):
		return exit.Misused("give --admin-token, or listen on 127.0.0.1",
			"--admin %s can be reached from elsewhere and has no --admin-token", c.Admin)
	case c.Sink != Builtin:
		return exit.Misused("this build knows builtin only", "--sink %q: there is no such sink", c.Sink)
	case c.PSP != Builtin:
		return checkProvider(c.PSP)
	}
	return nil
}

// providerFile names the file of the builtin provider; empty if there is none.
func (c Config) providerFile() (string, error) {
	switch {
	case c.PSP != Builtin:
		return "", nil
	case c.PSPDB != "":
		return FilePath("--psp-db", c.PSPDB)
	case c.url.path != "":
		return c.url.path + ".psp", nil
	}
	return "", exit.Misused("give --psp-db sqlite:PATH, the same file to every shop of this database, or --psp URL",
		"the builtin provider keeps its charges in a file, and --db %s is a server", c.url)
}

func checkProvider(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return exit.Misused("give a base URL such as http://127.0.0.1:8090, or builtin",
			"--psp %q is not the URL of a provider", base)
	}
	return nil
}

// loopback reports whether addr can be reached from this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
