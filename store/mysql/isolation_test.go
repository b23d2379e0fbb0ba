// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

// level is a DSN parameter that sets the isolation level of each session.
func level(name string) string { return "tx_isolation=" + url.QueryEscape("'"+name+"'") }

// TestIsolation has a record that is written, completed and not committed. Look-ups
// don't see it at any isolation level that New accepts, and would at the other.
func TestIsolation(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	tx, err := b.plain.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	id := intent("open").ID()
	for _, query := range []string{
		"INSERT INTO reprise_ledger VALUES (?, 'alice', 'create-order', 'open', X'01', REPEAT('t', 16), UTC_TIMESTAMP(6))",
		"INSERT INTO reprise_result (id, state, status, body, reference, completed_at, expires_at, tombstone_until) VALUES (?, 'completed', " +
			"201, 'never', '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)",
	} {
		if _, err := tx.ExecContext(t.Context(), query, id[:]); err != nil {
			t.Fatal(err)
		}
	}

	dirty := openDB(t, b.dsn+"?"+level("READ-UNCOMMITTED"))
	if _, err := mysql.New(t.Context(), dirty, nil); err == nil ||
		!strings.Contains(err.Error(), "tx_isolation") || !strings.Contains(err.Error(), "transaction_isolation") {
		t.Errorf("READ-UNCOMMITTED: error %v, want one that says what to set", err)
	}
	var n int
	if err := dirty.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM reprise_result").Scan(&n); err != nil || n != 1 {
		t.Errorf("READ-UNCOMMITTED: %d results, error %v; want the open one, or the test proves nothing", n, err)
	}

	for way, params := range map[string]string{"together": together + "&", "one by one": "?"} {
		for _, name := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
			d := b.open(params + level(name))
			if e, err := d.Find(t.Context(), intent("open")); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s, %s: found %s %q, error %v; it is not committed", name, way, e.State, e.Result.Body, err)
			}
			key := name + ", " + way
			work := func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, key) }
			for n, want := range []bool{true, false} {
				e, executed, err := execute(t.Context(), d, claim(key), work)
				if err != nil || executed != want || e.State != reprise.StateCompleted {
					t.Errorf("%s, attempt %d: executed %t, %s, error %v", key, n+1, executed, e.State, err)
				}
			}
			b.wantOrders(key, 1)
		}
	}
}

// TestIsolationNames checks the level under the name that each server has for it.
func TestIsolationNames(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"tx_isolation": "10.11.6-MariaDB", "transaction_isolation": "8.0.36"} {
		for value, refused := range map[string]bool{
			"READ-UNCOMMITTED": true, "READ-COMMITTED": false, "REPEATABLE-READ": false, "SERIALIZABLE": false,
		} {
			err := mysql.Check(map[string]string{"version": version, "autocommit": "ON", name: value})
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: error %v; refused should be %t", name, value, err, refused)
			}
		}
	}
}
