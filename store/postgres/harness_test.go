// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/internal/pgtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/postgres"
)

func TestMain(m *testing.M) {
	pgtest.Own(service)
	goleak.VerifyTestMain(dbtest.Suite{M: m})
}

var schemas atomic.Int64

// createSchema makes an empty schema and returns a URL that leads into it. It is
// much cheaper than a database, and tests don't see each other's either.
func createSchema(tb testing.TB) (dsn string) {
	tb.Helper()
	server := dbtest.Postgres(tb)
	name := fmt.Sprintf("test_%d", schemas.Add(1))
	db := openDB(tb, server.DSN("postgres"))
	if _, err := db.ExecContext(tb.Context(), "CREATE SCHEMA "+name); err != nil {
		tb.Fatal(err)
	}
	return server.DSN("postgres") + "&search_path=" + name
}

// openDriver opens a driver as a process of its own has it, migrated.
func openDriver(tb testing.TB, name string) (store.Driver[*sql.Tx], func()) {
	tb.Helper()
	d := mustNew(tb, openDB(tb, name), nil)
	if err := migrate.Up(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	return d, func() { _ = d.Close() }
}

func mustNew(tb testing.TB, db *sql.DB, o *postgres.Options) *postgres.Driver {
	tb.Helper()
	d, err := postgres.New(tb.Context(), db, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

func openDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxIdleConns(16)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// age makes every time that the driver judges by older.
func age(by time.Duration) (statements []string) {
	for _, columns := range []string{
		"reprise_ledger lease_until claimed_at completed_at expires_at tombstone_until due_at", "reprise_inbox received_at",
		"reprise_outbox enqueued_at", "reprise_outbox_hold next_at", "reprise_outbox_slot lease_until",
	} {
		table, names, _ := strings.Cut(columns, " ")
		for name := range strings.FieldsSeq(names) {
			statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s - %d * interval '1 microsecond'", table, name, name, by.Microseconds()))
		}
	}
	return statements
}
