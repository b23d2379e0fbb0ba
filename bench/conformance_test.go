// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
	"github.com/reprise-go/reprise/store/storetest"
)

// TestConformance runs the invariants of storage on the other drivers for SQLite
// that this program links: ncruces, or mattn with -tags mattn. The library's own
// tests run them on modernc.
func TestConformance(t *testing.T) {
	t.Parallel()
	if len(sqliteDrivers) < 2 {
		t.Fatal("only one driver for SQLite is linked")
	}
	for _, driver := range sqliteDrivers[1:] {
		t.Run(driver.module, func(t *testing.T) {
			t.Parallel()
			// An application that knows nothing of the driver begins as SQLite does, without
			// the write lock.
			options := strings.Replace(driver.options, "_txlock=immediate", "_txlock=deferred", 1)
			open := func(tb testing.TB, name string) *sql.DB {
				tb.Helper()
				db, err := sql.Open(driver.name, "file:"+name+options)
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(func() { _ = db.Close() })
				return db
			}
			storetest.Run(t, storetest.Harness[*sql.Tx]{
				Create: func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "store.db") },
				Open: func(tb testing.TB, name string) (store.Driver[*sql.Tx], func()) {
					tb.Helper()
					d, err := sqlite.New(tb.Context(), open(tb, name), nil)
					if err != nil {
						tb.Fatal(err)
					}
					if err := migrate.Up(tb.Context(), d); err != nil {
						tb.Fatal(err)
					}
					return d, func() { _ = d.Close() }
				},
				Plain: func(tb testing.TB, name string) storetest.Plain[*sql.Tx] {
					return storetest.PlainSQL(open(tb, name))
				},
				Age: older,
			})
		})
	}
}

// older rewrites every time that store/sqlite has stored.
func older(by time.Duration) (statements []string) {
	for _, columns := range []string{
		"reprise_ledger lease_until claimed_at completed_at expires_at tombstone_until", "reprise_inbox received_at",
		"reprise_outbox enqueued_at", "reprise_outbox_hold enqueued_at next_at", "reprise_outbox_slot lease_until",
	} {
		table, names, _ := strings.Cut(columns, " ")
		for name := range strings.FieldsSeq(names) {
			statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s - %d", table, name, name, by.Microseconds()))
		}
	}
	return statements
}
