// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
	"github.com/reprise-go/reprise/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness[*sql.Tx]{
		Create: func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "store.db") },
		Open:   openDriver,
		Plain: func(tb testing.TB, name string) storetest.Plain[*sql.Tx] {
			return storetest.PlainSQL(openFile(tb, name))
		},
		Age: age,
	})
}

func openDriver(tb testing.TB, name string) (store.Driver[*sql.Tx], func()) {
	tb.Helper()
	d, err := sqlite.New(tb.Context(), openFile(tb, name), nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := migrate.Up(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	return d, func() { _ = d.Close() }
}

func openFile(tb testing.TB, name string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+name+"?_pragma=busy_timeout(10000)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// age rewrites every time that the driver has stored.
func age(by time.Duration) (statements []string) {
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
