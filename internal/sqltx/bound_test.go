// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/store"
)

// endlessly holds the ways in which a handler can run a statement that never ends.
var endlessly = map[string]func(context.Context, *sql.Tx) error{
	"exec": func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "ENDLESS")
		return err
	},
	"query": func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.QueryContext(ctx, "ENDLESS")
		return err
	},
	"prepare": func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.PrepareContext(ctx, "ENDLESS PREPARE")
		return err
	},
	"prepared exec": func(ctx context.Context, tx *sql.Tx) error {
		s, err := tx.PrepareContext(context.Background(), "ENDLESS")
		if err != nil {
			return err
		}
		_, err = s.ExecContext(ctx)
		return err
	},
	"prepared query": func(ctx context.Context, tx *sql.Tx) error {
		s, err := tx.PrepareContext(context.Background(), "ENDLESS")
		if err != nil {
			return err
		}
		_, err = s.QueryContext(ctx)
		return err
	},
	"reading rows": func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "THEN ENDLESS")
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		return errors.Join(rows.Err(), rows.Close())
	},
}

func TestBound(t *testing.T) {
	t.Parallel()
	for name, run := range endlessly {
		t.Run("a statement ("+name+") ends with its handler's context", func(t *testing.T) {
			t.Parallel()
			tp := &tape{endless: make(chan struct{})}
			c := lend(t, richConn{plainConn{tp}}, tp)
			ctx, cancel := context.WithCancel(t.Context())
			tx := begin(t, c)
			wait := tp.inside(cancel)
			defer wait()
			if err := run(ctx, tx.SQL()); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want the context's", err)
			}
			over(t, c, tx, tp)
		})

		t.Run("a statement ("+name+") without a context ends with its transaction's", func(t *testing.T) {
			t.Parallel()
			tp := &tape{endless: make(chan struct{})}
			c := lend(t, richConn{plainConn{tp}}, tp)
			// The handler's context may end too, and does not, beside one that can't.
			mine, cancelMine := context.WithCancel(t.Context())
			defer cancelMine()
			for _, given := range []context.Context{context.Background(), mine} {
				ctx, cancel := context.WithCancel(t.Context())
				tx, err := c.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				wait := tp.inside(cancel)
				if err := run(given, tx.SQL()); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want the context's", err)
				}
				wait()
				over(t, c, tx, tp)
			}
		})
	}

	t.Run("the end of a transaction's context does not end the transaction behind its owner's back", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("the owner could not commit: %v", err)
		}
		if want := []string{"BEGIN", "COMMIT"}; !slices.Equal(tp.said, want) {
			t.Errorf("the connection was told %q, want %q", tp.said, want)
		}
	})

	t.Run("a statement that has not begun by then is refused, and the next row too", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := tx.SQL().QueryContext(context.Background(), "SELECT")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		cancel()
		if rows.Next() || !errors.Is(rows.Err(), context.Canceled) {
			t.Errorf("a row was read after the end: %v", rows.Err())
		}
		over(t, c, tx, tp)
	})

	t.Run("an error that only falls together with the end is still on the record", func(t *testing.T) {
		t.Parallel()
		bad := errors.New("bad")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := late(ctx, bad); !errors.Is(err, bad) || !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want both", err)
		}
		if err := late(t.Context(), bad); !errors.Is(err, bad) || errors.Is(err, context.Canceled) {
			t.Errorf("error %v under a living context", err)
		}
	})

	t.Run("a deadline is told from a cancellation", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		tx, err := lend(t, richConn{plainConn{tp}}, tp).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.SQL().ExecContext(t.Context(), "ENDLESS"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want context.DeadlineExceeded", err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// inside calls f when an endless statement is running, and returns what waits
// for that.
func (t *tape) inside(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-t.endless
		f()
	}()
	return func() { <-done }
}

// over asserts that the transaction takes nothing more, that its owner still can
// use the connection, and that the owner ends it.
func over(t *testing.T, c *Conn, tx *Tx, tp *tape) {
	t.Helper()
	if _, err := tx.SQL().ExecContext(t.Context(), "INSERT"); !errors.Is(err, store.ErrTxMisuse) || tp.has("exec directly INSERT []") {
		t.Errorf("the next statement: %v", err)
	}
	if _, err := c.Exec(context.Background(), "OWN"); err != nil {
		t.Errorf("the owner's statement: %v", err)
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, store.ErrTxMisuse) || tp.has("COMMIT") {
		t.Errorf("the owner could commit: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil || !tp.has("ROLLBACK") {
		t.Errorf("the owner could not roll back: %v", err)
	}
}
