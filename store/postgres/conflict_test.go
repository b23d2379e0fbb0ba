// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/postgres"
)

// levels are the ways to come to an isolation level.
var levels = map[string]struct {
	o          *postgres.Options
	parameters []string
}{
	"repeatable read by default": {nil, []string{"default_transaction_isolation=repeatable read"}},
	"serializable by default":    {nil, []string{"default_transaction_isolation=serializable"}},
	"repeatable read by option":  {&postgres.Options{Isolation: sql.LevelRepeatableRead}, nil},
	"serializable by option":     {&postgres.Options{Isolation: sql.LevelSerializable}, nil},
}

// TestSerialisationFailure lets a transaction read a row that another one then
// changes, and change it too.
func TestSerialisationFailure(t *testing.T) {
	t.Parallel()
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, level.o, level.parameters...)
			f.exec("INSERT INTO orders (ref) VALUES ('stock')")
			for _, hides := range []bool{false, true} {
				in := intent(reprise.Key(fmt.Sprintf("hides-%t", hides)))
				runs, seen := 0, 0
				attempt := func() error {
					_, _, err := f.order(f.ctx, claim(in), func(ctx context.Context, tx *sql.Tx) error {
						var n int
						if err := tx.QueryRowContext(ctx, "SELECT n FROM orders WHERE ref = 'stock'").Scan(&n); err != nil {
							return err
						}
						if runs++; runs == 1 {
							f.exec("UPDATE orders SET n = n + 1 WHERE ref = 'stock'")
						}
						_, err := tx.ExecContext(ctx, "UPDATE orders SET n = $1 WHERE ref = 'stock'", n+1)
						if err != nil {
							seen++
						}
						if hides {
							return nil
						}
						if err != nil {
							return errHandler // which says nothing of a conflict
						}
						return nil
					})
					return err
				}
				before := f.count("SELECT n FROM orders WHERE ref = 'stock'")
				if err := attempt(); !errors.Is(err, store.ErrConflict) || !hides && !errors.Is(err, errHandler) {
					t.Errorf("%v, want ErrConflict beside the handler's own error", err)
				}
				if seen != 1 {
					t.Fatalf("%d conflicts: nothing was tested", seen)
				}
				f.want(in, 0, 0)
				if err := attempt(); err != nil {
					t.Errorf("run again: %v", err)
				}
				f.want(in, 1, 1)
				if n := f.count("SELECT n FROM orders WHERE ref = 'stock'"); n != before+2 {
					t.Errorf("the counter went from %d to %d, want 2 more: one was lost", before, n)
				}
			}
		})
	}
}

// TestSerialisationFailureAtCommit makes two transactions that each read what the
// other writes: the second of them fails when it commits.
func TestSerialisationFailureAtCommit(t *testing.T) {
	t.Parallel()
	f := setup(t, &postgres.Options{Isolation: sql.LevelSerializable})
	f.exec("INSERT INTO orders (ref, n) VALUES ('a', 1), ('b', 1)")
	skew := func(ctx context.Context, tx *sql.Tx, write string) error {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT sum(n) FROM orders WHERE ref IN ('a', 'b')").Scan(&n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE orders SET n = n - $1 WHERE ref = $2", n, write)
		return err
	}
	err := f.Transact(f.ctx, func(ctx context.Context, outer *sql.Tx) error {
		if err := skew(ctx, outer, "a"); err != nil {
			return err
		}
		return f.Transact(ctx, func(ctx context.Context, inner *sql.Tx) error { return skew(ctx, inner, "b") })
	})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("%v, want ErrConflict", err)
	}
	if n := f.count("SELECT sum(n) FROM orders WHERE ref IN ('a', 'b')"); n != 0 {
		t.Errorf("the sum is %d, want 0: both took what there was once", n)
	}
}

// TestDeadlock lets two transactions lock two rows in opposite order.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	f := setup(t, nil, "deadlock_timeout=10ms")
	f.exec("INSERT INTO orders (ref) VALUES ('a'), ('b')")
	var met sync.WaitGroup
	met.Add(2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			_, _, errs[i] = f.order(f.ctx, claim(intent(reprise.Key(fmt.Sprintf("k-%d", i)))), func(ctx context.Context, tx *sql.Tx) error {
				for n, ref := range order {
					if n == 1 {
						met.Done()
						met.Wait()
					}
					if _, err := tx.ExecContext(ctx, "UPDATE orders SET n = n + 1 WHERE ref = $1", ref); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	lost := 0
	for i, err := range errs {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", i)))
		switch {
		case err == nil:
			f.want(in, 1, 1)
		case errors.Is(err, store.ErrConflict):
			lost++
			f.want(in, 0, 0)
		default:
			t.Errorf("%v, want ErrConflict", err)
		}
	}
	if lost != 1 {
		t.Errorf("%d transactions lost, want 1", lost)
	}
}

// TestOtherContentInFlight: what another transaction executes is refused with
// another content, and awaited with the same.
func TestOtherContentInFlight(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	in := intent("k-1")
	_, executed, err := f.order(f.ctx, claim(in), func(ctx context.Context, tx *sql.Tx) error {
		never := func(context.Context, *sql.Tx) error {
			t.Error("work was called beside the work of another attempt")
			return nil
		}
		if _, _, err := f.order(ctx, claim(in), never); !errors.Is(err, store.ErrBusy) {
			t.Errorf("the same content: %v, want ErrBusy", err)
		}
		e, executed, err := f.order(ctx, claim(other(in)), never)
		if err != nil || executed || e.State != reprise.StateInProgress || e.Intent.Fingerprint == other(in).Fingerprint {
			t.Errorf("other content: %q of %+v, executed %t, error %v; want it in progress", e.State, e.Intent, executed, err)
		}
		if e.Intent.Fingerprint.Version() != in.Fingerprint.Version() {
			t.Errorf("its version is %d, which can't be compared", e.Intent.Fingerprint.Version())
		}
		return nil
	})
	if err != nil || !executed {
		t.Errorf("executed %t, error %v", executed, err)
	}
}

// TestSameContentIsNeverTakenForOther hammers one key with one content while
// attempts begin, fail and end around each other: a client that is told that its
// key stands for something else takes a new one, and its work is done twice.
func TestSameContentIsNeverTakenForOther(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	const workers, rounds = 6, 60
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				in := intent("k-1")
				e, executed, err := f.Execute(f.ctx, claim(in), func(context.Context, *sql.Tx) (store.Completion, error) {
					return store.Completion{}, errHandler
				})
				if err == nil {
					t.Errorf("%q of %+v, executed %t: nothing was ever in progress with other content", e.State, e.Intent, executed)
				} else if !errors.Is(err, errHandler) && !errors.Is(err, store.ErrBusy) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestInterrupted ends the context of a handler inside a statement.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	in := intent("k-1")
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	go func() {
		for f.ctx.Err() == nil && f.count("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(1000)' AND state = 'active'") == 0 {
			continue
		}
		cancel()
	}()
	_, executed, err := f.order(ctx, claim(in), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(1000)")
		return err
	})
	if executed || !errors.Is(err, context.Canceled) {
		t.Errorf("executed %t, error %v; want the context's", executed, err)
	}
	f.want(in, 0, 0)
	f.until("the intent is free", func() bool {
		_, executed, err := f.order(f.ctx, claim(in), nil)
		if err != nil && !errors.Is(err, store.ErrBusy) {
			t.Fatal(err)
		}
		return executed
	})
	f.want(in, 1, 1)
}
