// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	_ "github.com/lib/pq"

	"github.com/reprise-go/reprise/internal/pgtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/postgres"
)

// TestRerunningClientLibrary uses lib/pq, which runs a statement again when its
// answer is lost: New refuses it, and where that is accepted, nothing of the
// driver's own is ever run twice.
func TestRerunningClientLibrary(t *testing.T) {
	t.Parallel()
	dsn := createSchema(t)
	p, through := pgtest.StartProxy(t, dsn)
	db, err := sql.Open("postgres", through)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := postgres.New(t.Context(), db, nil); err == nil || !strings.Contains(err.Error(), "AcceptReruns") {
		t.Fatalf("lib/pq was not refused: %v", err)
	}
	f := setupOn(t, &postgres.Options{AcceptReruns: true}, dsn, openDB(t, dsn), db)

	f.mustOrder(intent("k-0"))
	if e, executed, err := f.order(f.ctx, claim(intent("k-0")), nil); err != nil || executed || string(e.Result.Body) != "order of k-0" {
		t.Errorf("a repeat: %+v, executed %t, error %v", e.Result, executed, err)
	}
	in := intent("k-1")
	mine := claim(in)
	fired := p.Arm("COMMIT", pgtest.LoseAnswer)
	_, executed, err := f.order(f.ctx, mine, func(ctx context.Context, tx *sql.Tx) error { return f.Enqueue(ctx, tx, message("m-1", "a")) })
	if executed || !errors.Is(err, store.ErrCommitUnknown) {
		t.Errorf("executed %t, error %v; want ErrCommitUnknown", executed, err)
	}
	fired()
	if e, err := f.Resolve(f.ctx, in); err != nil || e.Token != mine.Token {
		t.Errorf("resolved token %x, error %v; want %x", e.Token, err, mine.Token)
	}
	f.want(in, 1, 1)
	_, _, err = f.order(f.ctx, claim(intent("k-2")), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (ref) VALUES ('k-1')")
		return err
	})
	if err == nil {
		t.Error("a unique violation was not reported")
	}
	f.want(intent("k-2"), 0, 0)
	r, slot := f.relay()
	f.wantIDs("delivered", f.drain(r, slot, 10), "m-1")
}

// TestRerunIsReal is why New refuses: of two client libraries, asked to insert a
// row without a transaction, one inserts two and reports a success.
func TestRerunIsReal(t *testing.T) {
	t.Parallel()
	for library, c := range map[string]struct {
		rows  int
		fails bool
	}{"postgres": {2, false}, "pgx": {1, true}} {
		dsn := createSchema(t)
		p, through := pgtest.StartProxy(t, dsn)
		f := setupOn(t, nil, dsn, openDB(t, dsn), openDB(t, dsn))
		f.exec("CREATE TABLE log (line text)")
		db, err := sql.Open(library, through)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		const insert = "INSERT INTO log VALUES ('once')"
		fired := p.Arm(insert, pgtest.LoseAnswer)
		_, err = db.ExecContext(f.ctx, insert)
		fired()
		if n := f.count("SELECT count(*) FROM log"); (err != nil) != c.fails || n != c.rows {
			t.Errorf("%s: %d rows and error %v, want %d; does it behave differently now?", library, n, err, c.rows)
		}
	}
}
