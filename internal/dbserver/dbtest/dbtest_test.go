// SPDX-License-Identifier: Apache-2.0

package dbtest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

func TestDatabasesAreFresh(t *testing.T) {
	t.Parallel()
	first, second := dbtest.PostgresDatabaseName(t), dbtest.PostgresDatabaseName(t)
	server := dbtest.Postgres(t)
	if _, err := server.Exec(t.Context(), first, "CREATE TABLE orders (id int)"); err != nil {
		t.Fatal(err)
	}
	n, err := server.Exec(t.Context(), second, "SELECT count(*) FROM pg_tables WHERE tablename = 'orders'")
	if err != nil || n != "0" {
		t.Errorf("the second database has %s tables of the first, %v", n, err)
	}
}

// TestDatabasesAreDropped looks from the outside, when their test has ended.
func TestDatabasesAreDropped(t *testing.T) {
	t.Parallel()
	var postgres, mariadb string
	t.Run("use", func(t *testing.T) {
		postgres = dbtest.PostgresDatabaseName(t)
		dsn := dbtest.MariaDBDatabase(t)
		mariadb = dsn[strings.LastIndexByte(dsn, '/')+1:]
		if n := dbtest.Postgres(t); n != dbtest.Postgres(t) {
			t.Error("two servers in one process")
		}
	})
	n, err := dbtest.Postgres(t).Exec(t.Context(), "postgres", "SELECT count(*) FROM pg_database WHERE datname = '"+postgres+"'")
	if err != nil || n != "0" {
		t.Errorf("PostgreSQL still has %s databases %s, %v", n, postgres, err)
	}
	n, err = dbtest.MariaDB(t).Exec(t.Context(), "mysql", "SHOW DATABASES LIKE '"+mariadb+"'")
	if err != nil || n != "" {
		t.Errorf("MariaDB still has %q, %v", n, err)
	}
}
