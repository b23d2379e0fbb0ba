// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/pgxv5"
)

func openPool(tb testing.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// openDriver returns a driver with a pool of its own, migrated.
func openDriver(tb testing.TB, dsn string, o *pgxv5.Options) (d *pgxv5.Driver, stop func()) {
	tb.Helper()
	d, err := pgxv5.New(tb.Context(), openPool(tb, dsn), o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := migrate.Up(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	return d, func() {
		if err := d.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	}
}

// age rewrites every time that the driver has stored in order to judge by it.
func age(by time.Duration) (statements []string) {
	for _, columns := range []string{
		"reprise_ledger lease_until claimed_at completed_at expires_at tombstone_until", "reprise_inbox received_at",
		"reprise_outbox enqueued_at", "reprise_outbox_hold next_at", "reprise_outbox_slot lease_until",
	} {
		table, names, _ := strings.Cut(columns, " ")
		for name := range strings.FieldsSeq(names) {
			statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s - %d * interval '1 microsecond'", table, name, name, by.Microseconds()))
		}
	}
	return statements
}
