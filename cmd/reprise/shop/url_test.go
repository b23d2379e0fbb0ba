// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// secret is a password with everything that a URL gives a meaning to.
const (
	secret  = "p@ss/w:rd?#%&"
	escaped = "p%40ss%2Fw%3Ard%3F%23%25%26"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, shown := range map[string]string{
		"sqlite:shop.db":                                        "shop.db",
		"sqlite:/var/lib/shop.db":                               "/var/lib/shop.db",
		"postgres://ada:" + escaped + "@db/shop":                "postgres://db:5432/shop",
		"postgresql://ada@db:1234/shop?sslmode=disable":         "postgres://db:1234/shop",
		"postgres://db/shop?user=ada&password=" + escaped:       "postgres://db:5432/shop",
		"postgres:///shop?host=/run/postgresql&user=ada":        "postgres:///run/postgresql/shop",
		"mysql://ada:" + escaped + "@db/shop":                   "mysql://db:3306/shop",
		"mariadb://ada@db:1234/shop?tls=skip-verify":            "mysql://db:1234/shop",
		"mysql://ada:" + escaped + "@/shop?socket=/run/my.sock": "mysql:///run/my.sock/shop",
		"mysql://[::1]:1234/shop":                               "mysql://[::1]:1234/shop",
	} {
		u, err := shop.ParseURL("--db", raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if u.String() != shown {
			t.Errorf("%s is shown as %s; want %s", raw, u, shown)
		}
	}
}

// TestURLWithoutMeaning demands that nothing of a URL that can't be read is repeated
// where it could be a password.
func TestURLWithoutMeaning(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "shop.db", "sqlite:", "sqlite://shop.db", "oracle://ada:s3cret@db/shop", "ada:s3cret@tcp(db:3306)/shop",
		"postgres://ada:s3cret%@db/shop", "postgres://ada:s3cret@db:port/shop", "postgres://db/shop?password=s3cret&sslmode=perhaps",
		"mysql://ada:s3cret%@db/shop", "mysql://ada:s3cret@db:port/shop", "mysql://ada:s3cret@db", "mysql://ada:s3cret@db/",
		"mysql://ada:s3cret@db/shop?tls=perhaps", "mysql://ada:s3cret@db/shop?timeout=soon", "mysql://ada:s3cret@db/a/b",
	} {
		_, err := shop.ParseURL("--db", raw)
		if exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: %v", raw, err)
		} else if strings.Contains(err.Error(), "s3c") {
			t.Errorf("%s: the password is repeated: %v", raw, err)
		}
	}
}

func TestMySQLSource(t *testing.T) {
	t.Parallel()
	read := func(raw string) *mysql.Config {
		t.Helper()
		u, err := shop.ParseURL("--db", raw)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mysql.ParseDSN(shop.DSN(u))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := read("mysql://ada:" + escaped + "@db/shop")
	if c.User != "ada" || c.Passwd != secret || c.Net != "tcp" || c.Addr != "db:3306" || c.DBName != "shop" {
		t.Errorf("%+v", c)
	}
	if !c.MultiStatements || !c.InterpolateParams || c.Timeout == 0 || !strings.Contains(c.Params["sql_mode"], "STRICT_ALL_TABLES") {
		t.Errorf("%+v", c)
	}
	c = read("mysql://ada@/shop?socket=/run/my.sock&timeout=3s&tls=skip-verify&multiStatements=false&wait_timeout=60")
	if c.Net != "unix" || c.Addr != "/run/my.sock" || c.Timeout.Seconds() != 3 || c.TLSConfig != "skip-verify" ||
		!c.MultiStatements || c.Params["wait_timeout"] != "60" {
		t.Errorf("%+v", c)
	}
}

func TestPostgresSource(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct {
		seconds float64
		name    string
	}{
		"postgres://ada:" + escaped + "@db/shop":                                             {10, "reprise"},
		"postgres://ada:" + escaped + "@db/shop?connect_timeout=3":                           {3, "reprise"},
		"postgres://ada:" + escaped + "@db/shop?application_name=mine&sslmode=disable":       {10, "mine"},
		"postgres://ada:" + escaped + "@db,other/shop?connect_timeout=3&application_name=me": {3, "me"},
	} {
		u, err := shop.ParseURL("--db", raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		c, err := pgx.ParseConfig(shop.DSN(u))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if c.Password != secret || c.Database != "shop" || c.ConnectTimeout.Seconds() != want.seconds || c.RuntimeParams["application_name"] != want.name {
			t.Errorf("%s: %+v", raw, c.Config)
		}
	}
}
