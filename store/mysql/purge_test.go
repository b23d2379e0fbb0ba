// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/reprise-go/reprise/store"
)

// TestHalfPurged has a claim come while its old record, which is past its tombstone,
// is deleted from one table and not yet from the others. What is left looks like a
// claim in flight, whose content the new one would be refused for.
func TestHalfPurged(t *testing.T) {
	t.Parallel()
	for way, params := range both {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			d := b.open(params)
			work := func(ref string) func(context.Context, *sql.Tx) error {
				return func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, ref) }
			}
			if _, _, err := execute(t.Context(), d, claim("k"), work("old")); err != nil {
				t.Fatal(err)
			}
			b.exec("UPDATE reprise_result SET expires_at = '2001-01-01', tombstone_until = '2001-01-01', due_at = '2001-01-01'")
			purge, err := b.plain.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = purge.Rollback() }()
			for _, table := range []string{"reprise_result", "reprise_run"} {
				if _, err := purge.ExecContext(t.Context(), "DELETE FROM "+table); err != nil {
					t.Fatal(err)
				}
			}
			c := claim("k")
			c.Intent.Fingerprint[1] = 9
			if e, executed, err := execute(t.Context(), d, c, work("new")); executed || !errors.Is(err, store.ErrBusy) {
				t.Errorf("beside a purge: executed %t, %s, error %v; want ErrBusy", executed, e.State, err)
			}
			b.wantOrders("new", 0)
			if _, err := purge.ExecContext(t.Context(), "DELETE FROM reprise_ledger"); err != nil {
				t.Fatal(err)
			}
			if err := purge.Commit(); err != nil {
				t.Fatal(err)
			}
			if _, executed, err := execute(t.Context(), d, c, work("new")); err != nil || !executed {
				t.Errorf("behind the purge: executed %t, error %v", executed, err)
			}
			b.wantOrders("new", 1)
		})
	}
}
