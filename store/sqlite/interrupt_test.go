// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/reprise-go/reprise/store"
)

// running is what the SQL function test_running(n) calls, once for each n, from
// inside the statement that contains it.
var running struct {
	last  atomic.Int64
	calls sync.Map // int64 -> func()
}

func init() {
	sqlite.MustRegisterScalarFunction("test_running", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		if call, ok := running.calls.LoadAndDelete(args[0].(int64)); ok {
			call.(func())()
		}
		return int64(1), nil
	})
}

// whenRunning returns a condition in SQL that is true, and calls f when a
// statement evaluates it.
func whenRunning(f func()) (condition string) {
	n := running.last.Add(1)
	running.calls.Store(n, f)
	return fmt.Sprintf("test_running(%d)", n)
}

// endless holds statements without an end, for a condition on their rows.
var endless = map[string]string{
	"query":  "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE %s AND x < 0",
	"insert": "INSERT INTO orders (ref) WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE %s AND x < 0",
}

// TestEndlessStatement: a statement that never ends is interrupted when its
// time is up, and costs its own request alone.
func TestEndlessStatement(t *testing.T) {
	t.Parallel()
	for kind, query := range endless {
		for _, c := range []struct {
			name string
			with func(ctx context.Context) context.Context
		}{
			{"under the request's context", func(ctx context.Context) context.Context { return ctx }},
			{"without any context", func(context.Context) context.Context { return context.Background() }},
		} {
			t.Run(kind+" "+c.name, func(t *testing.T) {
				t.Parallel()
				f := setup(t, nil)
				ctx, timeUp := context.WithCancel(t.Context())
				fired := 0
				statement := fmt.Sprintf(query, whenRunning(func() { fired++; timeUp() }))
				runs := map[string]int{}
				place := func(key string) func() error {
					return func() error {
						_, _, err := f.Execute(t.Context(), claim(key), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
							runs[key]++ // the turn orders it
							return completion(key), errors.Join(order(ctx, tx, key), f.Enqueue(ctx, tx, message(key, "")))
						})
						return err
					}
				}
				errs := f.together(
					place("before"),
					func() error {
						_, _, err := f.Execute(ctx, claim("endless"), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
							if err := order(ctx, tx, "endless"); err != nil {
								return store.Completion{}, err
							}
							if kind == "query" {
								return completion("endless"), tx.QueryRowContext(c.with(ctx), statement).Scan(new(int))
							}
							_, err := tx.ExecContext(c.with(ctx), statement)
							return completion("endless"), err
						})
						return err
					},
					place("after"),
				)
				if fired != 1 {
					t.Fatalf("the statement ran %d times", fired)
				}
				if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], context.Canceled) || errors.Is(errs[1], store.ErrConflict) {
					t.Errorf("errors %v", errs)
				}
				f.kept("before", 1)
				f.kept("after", 1)
				f.kept("endless", 0)
				// SQLite ends the whole transaction with an interrupted write, and only
				// then are the others run again.
				if want := map[string]int{"query": 1, "insert": 2}[kind]; runs["before"] != want {
					t.Errorf("the one before it ran %d times, want %d", runs["before"], want)
				}
				if err := f.place("endless"); err != nil {
					t.Errorf("the same request with other work: %v", err)
				}
				f.kept("endless", 1)
			})
		}
	}
}

// TestSpoiltBatches: a member whose batches are ended by others again and again
// gets one of its own.
func TestSpoiltBatches(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	var stop atomic.Bool
	runs := 0
	work := []func() error{func() error {
		_, _, err := f.Execute(t.Context(), claim("a"), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
			runs++
			return completion("a"), errors.Join(order(ctx, tx, "a"), f.Enqueue(ctx, tx, message("a", "")))
		})
		stop.Store(true)
		return err
	}}
	for range 4 {
		work = append(work, func() error {
			for !stop.Load() { // there is always one that waits when the member's turn is over
				_ = f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO orders (ref) VALUES ('x'), ('x')")
					return err
				})
			}
			return nil
		})
	}
	if err := errors.Join(f.together(work...)...); err != nil {
		t.Error(err)
	}
	f.kept("a", 1)
	if runs < 2 || runs > maxSpoilt+2 {
		t.Errorf("it ran %d times, want at least once in vain and at most %d times", runs, maxSpoilt+2)
	}
}
