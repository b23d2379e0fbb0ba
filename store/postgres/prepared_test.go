// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/reprise-go/reprise"
)

// TestPreparedSessions orders in one session that has the driver's prepared
// statements, lacks them, or has one of them, as it happens behind a pooler.
func TestPreparedSessions(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.db.SetMaxOpenConns(1)
	session := func(statement string) {
		t.Helper()
		if _, err := f.db.ExecContext(f.ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	prepared := func() (n int) {
		t.Helper()
		const query = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'reprise\\_%' AND from_sql"
		if err := f.db.QueryRowContext(f.ctx, query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	orders := 0
	order := func() {
		t.Helper()
		in := intent(reprise.Key(fmt.Sprintf("k-%d", orders)))
		event := func(ctx context.Context, tx *sql.Tx) error {
			return f.Enqueue(ctx, tx, message("m-"+string(in.Key), "subject"))
		}
		if _, executed, err := f.order(f.ctx, claim(in), event); err != nil || !executed {
			t.Fatalf("%s: executed %t, error %v", in.Key, executed, err)
		}
		if _, executed, err := f.order(f.ctx, claim(in), event); err != nil || executed {
			t.Fatalf("%s again: executed %t, error %v", in.Key, executed, err)
		}
		orders++
		f.want(in, 1, 1)
		if n := f.count("SELECT count(*) FROM reprise_outbox"); n != orders {
			t.Fatalf("%d messages of %d orders", n, orders)
		}
	}

	order()
	if n := prepared(); n != 2 {
		t.Fatalf("the session has %d statements of the driver's, want 2", n)
	}
	order()
	forget := func(names string) {
		t.Helper()
		session("DO $$ DECLARE r record; BEGIN FOR r IN SELECT name FROM pg_prepared_statements WHERE name LIKE '" + names +
			"' AND from_sql LOOP EXECUTE 'DEALLOCATE ' || r.name; END LOOP; END $$")
	}
	forget("reprise\\_%")
	if n := prepared(); n != 0 {
		t.Fatalf("%d statements are left: nothing was tested", n)
	}
	order()
	if n := prepared(); n != 2 {
		t.Errorf("the session has %d statements of the driver's, want 2 again", n)
	}
	// The message that prepares both fails at the one that is there, and the claim is
	// made without; by then the other one has been prepared.
	forget("reprise\\_claim%")
	if n := prepared(); n != 1 {
		t.Fatalf("%d statements are left, want 1: nothing was tested", n)
	}
	order()
	if n := prepared(); n != 2 {
		t.Errorf("the session has %d statements of the driver's, want both", n)
	}
	order()
}
