// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
)

// together lets the first member of a batch wait in its handler until all others
// wait for the turn, so that they share its batch. Like any work it may run twice.
func (f *fixture) together(work ...func() error) []error {
	f.t.Helper()
	f.writer.batchTime = time.Hour
	entered, leave := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	errs := make([]error, len(work))
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = f.Transact(f.t.Context(), func(context.Context, *sql.Tx) error { // shares what becomes of the batch
			enter()
			<-leave
			return nil
		})
	})
	<-entered
	for i, w := range work {
		wg.Go(func() { errs[i] = w() })
		f.waiting(i + 1) // they take the turn in this order
	}
	close(leave)
	wg.Wait()
	return errs
}

func TestGroupCommit(t *testing.T) {
	t.Parallel()

	t.Run("requests that wait together share one COMMIT", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		const n = 40
		work := make([]func() error, n)
		for i := range work {
			work[i] = func() error { return f.place(fmt.Sprint("k", i)) }
		}
		before := f.hook.seen("COMMIT")
		for i, err := range f.together(work...) {
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if commits := f.hook.seen("COMMIT") - before; commits != 1 {
			t.Errorf("%d requests took %d COMMITs, want 1", n+1, commits)
		}
		for i := range n {
			f.kept(fmt.Sprint("k", i), 1)
		}
	})

	t.Run("MaxBatch bounds how many share one", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{MaxBatch: 4})
		work := make([]func() error, 11)
		for i := range work {
			work[i] = func() error { return f.place(fmt.Sprint("k", i)) }
		}
		before := f.hook.seen("COMMIT")
		for i, err := range f.together(work...) {
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if commits := f.hook.seen("COMMIT") - before; commits != 3 {
			t.Errorf("12 requests took %d COMMITs, want 3 of 4", commits)
		}
		if n := f.orders(); n != 11 {
			t.Errorf("%d orders, want 11", n)
		}
	})

	t.Run("nobody is answered before the COMMIT", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		answered := make(chan string, 2)
		early := 0
		f.hook.set(func(query string) error {
			if query == "COMMIT" {
				early += len(answered)
			}
			return nil
		}, nil)
		place := func(key string) func() error {
			return func() error {
				err := f.place(key)
				answered <- key
				return err
			}
		}
		if err := errors.Join(f.together(place("a"), place("b"))...); err != nil {
			t.Fatal(err)
		}
		if early != 0 || len(answered) != 2 {
			t.Errorf("%d requests were answered before COMMIT, %d after", early, len(answered)-early)
		}
	})

	t.Run("one that fails is rolled back alone", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		mine := errors.New("mine")
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(order(ctx, tx, "bad"), f.Enqueue(ctx, tx, message("bad", "")), mine)
				})
			},
			func() error { return f.place("b") },
		)
		if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], mine) {
			t.Errorf("errors %v", errs)
		}
		f.kept("a", 1)
		f.kept("b", 1)
		f.kept("bad", 0)
	})

	t.Run("one that panics is rolled back alone, and panics at its caller with its own value", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		type value struct{}
		var got any
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				defer func() { got = recover() }()
				return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					if err := order(ctx, tx, "bad"); err != nil {
						return err
					}
					panic(value{})
				})
			},
			func() error { return f.place("b") },
		)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if got != (value{}) {
			t.Errorf("the caller saw the panic %v", got)
		}
		f.kept("a", 1)
		f.kept("b", 1)
		f.kept("bad", 0)
	})

	t.Run("one whose goroutine ends is rolled back alone", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_ = order(ctx, tx, "bad")
				runtime.Goexit()
				return nil
			})
		})
		wg.Wait()
		if err := f.place("a"); err != nil {
			t.Fatal(err)
		}
		f.kept("bad", 0)
		f.kept("a", 1)
	})

	t.Run("a duplicate in the same batch is not executed, and answered after the COMMIT", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				e, executed, err := f.Execute(t.Context(), claim("a"), func(context.Context, *sql.Tx) (store.Completion, error) {
					t.Error("the duplicate was executed")
					return store.Completion{}, nil
				})
				if executed || string(e.Result.Body) != "a" {
					t.Errorf("the duplicate got executed %v, %+v", executed, e)
				}
				return err
			},
		)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		f.kept("a", 1)
	})

	t.Run("SQLite ending the transaction fails the guilty and runs the others again", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		runs := 0
		errs := f.together(
			func() error {
				_, _, err := f.Execute(t.Context(), claim("a"), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
					runs++
					return completion("a"), errors.Join(order(ctx, tx, "a"), f.Enqueue(ctx, tx, message("a", "")))
				})
				return err
			},
			func() error {
				return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO orders (ref) VALUES ('x'), ('x')")
					return err
				})
			},
			func() error { return f.place("b") },
		)
		if errs[0] != nil || errs[2] != nil || code(errs[1]) != codeConstraint {
			t.Errorf("errors %v", errs)
		}
		f.kept("a", 1)
		f.kept("b", 1)
		if n := f.orders(); n != 2 || runs != 2 {
			t.Errorf("%d orders and %d runs of the first, want 2 and 2", n, runs)
		}
	})

	t.Run("the same when it happens to the driver's own look-up", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		fail, fired := failing("SELECT 1 FROM reprise_ledger WHERE id = ?", 1, errEnded)
		var armed atomic.Bool
		f.hook.set(nil, func(query string) error {
			if !armed.Load() {
				return nil
			}
			return fail(query)
		})
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				return f.Transact(t.Context(), func(context.Context, *sql.Tx) error { armed.Store(true); return nil })
			},
			func() error { return f.place("guilty") },
			func() error { return f.place("b") },
		)
		if fired() != 1 || errs[0] != nil || errs[1] != nil || errs[3] != nil || !errors.Is(errs[2], store.ErrUnavailable) {
			t.Errorf("errors %v", errs)
		}
		f.kept("a", 1)
		f.kept("b", 1)
		f.kept("guilty", 0)
	})

	t.Run("a handler that swallows the end of the transaction is refused all the same", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, _ = tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO orders (ref) VALUES ('x'), ('x')")
					_ = order(ctx, tx, "bad")
					return nil
				})
			},
		)
		if errs[0] != nil || !errors.Is(errs[1], store.ErrTxMisuse) {
			t.Errorf("errors %v", errs)
		}
		f.kept("a", 1)
		f.kept("bad", 0)
	})

	t.Run("a deferred constraint violated by one fails that one", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := f.writer.conn.exec("PRAGMA foreign_keys = ON"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.db.Exec("CREATE TABLE lines (o INTEGER REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)"); err != nil {
			t.Fatal(err)
		}
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO lines VALUES (4711)")
					return err
				})
			},
			func() error { return f.place("b") },
		)
		if errs[0] != nil || errs[2] != nil || code(errs[1]) != codeConstraint {
			t.Errorf("errors %v", errs)
		}
		f.kept("a", 1)
		f.kept("b", 1)
		if n := f.count("SELECT count(*) FROM lines"); n != 0 {
			t.Errorf("%d lines, want 0", n)
		}
	})
}

func TestWaiting(t *testing.T) {
	t.Parallel()

	t.Run("ends with its context, having done nothing", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var late error
		if err := f.Transact(t.Context(), func(context.Context, *sql.Tx) error {
			var wg sync.WaitGroup
			wg.Go(func() {
				late = f.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, "late") })
			})
			f.waiting(1)
			cancel()
			wg.Wait() // it does not need the turn to give up
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(late, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", late)
		}
		if n := f.orders(); n != 0 {
			t.Errorf("%d orders, want none", n)
		}
	})

	t.Run("inside a handler for the driver itself is refused instead of hanging", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		var kept context.Context
		err := f.Transact(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			kept = context.WithoutCancel(ctx)
			return f.Transact(ctx, func(context.Context, *sql.Tx) error { return nil })
		})
		if !errors.Is(err, store.ErrTxMisuse) {
			t.Errorf("error %v, want ErrTxMisuse", err)
		}
		if err := f.Transact(kept, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Errorf("its context, used after it has returned: %v", err)
		}
	})

	t.Run("a handler may write to another file", func(t *testing.T) {
		t.Parallel()
		f, other := setup(t, nil), setup(t, nil)
		err := f.Transact(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			return other.Transact(ctx, func(context.Context, *sql.Tx) error { return nil })
		})
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("keeps the order of asking", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		var order []int
		work := make([]func() error, 20)
		for i := range work {
			work[i] = func() error {
				return f.Transact(t.Context(), func(context.Context, *sql.Tx) error {
					order = append(order, i) // the turn orders it
					return nil
				})
			}
		}
		if err := errors.Join(f.together(work...)...); err != nil {
			t.Fatal(err)
		}
		for i, got := range order {
			if i != got {
				t.Fatalf("turns were taken in the order %v", order)
			}
		}
	})

	t.Run("is over when the driver is closed", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := errors.Join(f.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := f.place("a"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
		if _, err := f.Find(t.Context(), intent("a")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the caller's *sql.DB serves no reads any more: %v", err)
		}
	})
}

// TestManyCallers is a storm with failures and cancellations, counted at the end.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{MaxBatch: 8})
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]int{}
	for i := range 32 {
		wg.Go(func() {
			for j := range 20 {
				key := fmt.Sprintf("k%d", (i*20+j)%160) // four callers for each key
				ctx, cancel := context.WithCancel(t.Context())
				if j%5 == 0 {
					cancel()
				}
				_, executed, err := f.Execute(ctx, claim(key), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
					if err := order(ctx, tx, key); err != nil {
						return store.Completion{}, err
					}
					if j%3 == 0 {
						return store.Completion{}, errors.New("no")
					}
					return completion(key), f.Enqueue(ctx, tx, message(key, ""))
				})
				cancel()
				mu.Lock()
				if err == nil && executed {
					acked[key]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, n := range acked {
		if n != 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
		f.kept(key, 1)
	}
	if n := f.orders(); n != len(acked) || n == 0 {
		t.Errorf("%d orders, %d acknowledged", n, len(acked))
	}
}
