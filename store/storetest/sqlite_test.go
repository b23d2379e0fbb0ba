// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// harness is the database that the mutants live in.
func harness() Harness[*sql.Tx] {
	return Harness[*sql.Tx]{
		Create: func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "mutant.db") },
		Open: func(tb testing.TB, name string) (driver, func()) {
			db := openDB(tb, name)
			d, err := sqlite.New(tb.Context(), db, nil)
			if err == nil {
				err = migrate.Up(tb.Context(), d)
			}
			if err != nil {
				tb.Fatalf("open %s: %v", name, err)
			}
			return d, func() { _ = d.Close() }
		},
		Plain: func(tb testing.TB, name string) Plain[*sql.Tx] { return PlainSQL(openDB(tb, name)) },
		Age:   ageSQLite,
	}
}

func openDB(tb testing.TB, name string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+name+"?_pragma=busy_timeout(10000)")
	if err != nil {
		tb.Fatalf("open %s: %v", name, err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// ageSQLite rewrites every time that store/sqlite judges by.
func ageSQLite(by time.Duration) (statements []string) {
	for _, column := range []struct{ table, name string }{
		{"reprise_ledger", "lease_until"},
		{"reprise_ledger", "claimed_at"},
		{"reprise_ledger", "completed_at"},
		{"reprise_ledger", "expires_at"},
		{"reprise_ledger", "tombstone_until"},
		{"reprise_outbox", "enqueued_at"},
		{"reprise_outbox_hold", "enqueued_at"},
		{"reprise_outbox_hold", "next_at"},
		{"reprise_outbox_slot", "lease_until"},
		{"reprise_inbox", "received_at"},
	} {
		statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s - %d", column.table, column.name, column.name, by.Microseconds()))
	}
	return statements
}
