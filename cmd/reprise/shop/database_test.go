// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

// kind is a kind of database that the shop runs on.
type kind struct {
	name string
	// driver is the database/sql driver.
	driver string
	// server says that the database is one that other processes connect to.
	server bool
	// fresh returns the URL of a new and empty database, which goes with the test.
	fresh func(*testing.T) string
}

var (
	onSQLite = kind{"sqlite", "sqlite", false, func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	}}
	onPostgres = kind{"postgres", "pgx", true, func(t *testing.T) string { return dbtest.PostgresDatabase(t) }}
	onMariaDB  = kind{"mariadb", "mysql", true, func(t *testing.T) string { return mysqlURL(dbtest.MariaDBDatabase(t)) }}
)

// mysqlURL writes USER@tcp(HOST:PORT)/DATABASE as a URL.
func mysqlURL(dsn string) string {
	return "mysql://" + strings.NewReplacer("tcp(", "", ")", "").Replace(dsn)
}

// onEach runs test on every kind of database, because what is promised does not
// depend on it.
func onEach(t *testing.T, test func(*testing.T, kind)) {
	t.Helper()
	t.Parallel()
	for _, on := range []kind{onSQLite, onPostgres, onMariaDB} {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			test(t, on)
		})
	}
}
