// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

// both are the two ways in which a driver speaks.
var both = map[string]string{"together": together, "one by one": ""}

// TestLockWaitTimeout makes a handler meet 1205 in earnest. The server has rolled
// back that statement alone: the order before it must not be committed.
func TestLockWaitTimeout(t *testing.T) {
	t.Parallel()
	for name, params := range both {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			if params == "" {
				params = "?innodb_lock_wait_timeout=1"
			} else {
				params += "&innodb_lock_wait_timeout=1"
			}
			d := b.open(params)
			tx, err := b.plain.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), "UPDATE stock SET n = n + 1 WHERE item = 'a'"); err != nil {
				t.Fatal(err)
			}
			var met error
			work := func(ctx context.Context, tx *sql.Tx) error {
				if err := order(ctx, tx, "one"); err != nil {
					return err
				}
				_, met = tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE item = 'a'")
				if met != nil {
					if err := order(ctx, tx, "after"); err == nil {
						t.Error("a statement after 1205 was let through")
					}
				}
				return nil // hides it
			}
			_, executed, err := execute(t.Context(), d, claim("k"), work)
			if met == nil || mysql.Number(met) != 1205 {
				t.Fatalf("the handler met %v; the test needs 1205", met)
			}
			if executed || !errors.Is(err, store.ErrConflict) {
				t.Errorf("executed %t, error %v; want a conflict", executed, err)
			}
			b.wantOrders("one", 0)
			b.wantOrders("after", 0)
			if _, err := d.Find(t.Context(), intent("k")); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the claim: %v, want none", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, executed, err = execute(t.Context(), d, claim("k"), work); err != nil || !executed {
				t.Errorf("once the lock is free: executed %t, error %v", executed, err)
			}
			b.wantOrders("one", 1)
		})
	}
}

// TestDeadlock makes two handlers meet 1213 in earnest. The server has rolled
// back the transaction of one of them, and would commit every further statement
// on that connection by itself.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	for name, params := range both {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			d := b.open(params)
			var first sync.WaitGroup
			first.Add(2)
			var deadlocks atomic.Int32
			attempt := func(key, one, two string) error {
				meet := sync.OnceFunc(func() { first.Done(); first.Wait() })
				return again(t.Context(), func() error {
					_, _, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error {
						for n, item := range []string{one, two} {
							if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE item = '"+item+"'"); err != nil {
								if mysql.Number(err) != 1213 {
									return err
								}
								deadlocks.Add(1)
								if order(ctx, tx, "ghost") == nil {
									t.Error("a statement after 1213 was let through")
								}
								return nil // hides it
							}
							if n == 0 {
								meet()
							}
						}
						return order(ctx, tx, key)
					})
					return err
				})
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := attempt("ab", "a", "b"); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if err := attempt("ba", "b", "a"); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if deadlocks.Load() == 0 {
				t.Fatal("there was no deadlock; the test proves nothing")
			}
			b.wantOrders("ghost", 0)
			b.wantOrders("ab", 1)
			b.wantOrders("ba", 1)
			if n := b.number("SELECT SUM(n) FROM stock"); n != 4 {
				t.Errorf("the stock was changed %d times, want 4", n)
			}
		})
	}
}

// TestThreeClaims has attempts queue behind one that rolls back, in three
// processes. With a claim that waits, InnoDB ends all waiters but one with 1213.
func TestThreeClaims(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	holder, others := b.open(together), []*mysql.Driver{b.open(together), b.open("")}
	failed := errors.New("changed its mind")
	for round := range 4 {
		key := fmt.Sprintf("k-%d", round)
		in, other := intent(key), intent(key)
		other.Fingerprint[1] = 9
		inside, release, held := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, _, err := execute(t.Context(), holder, claim(key), func(ctx context.Context, tx *sql.Tx) error {
				err := order(ctx, tx, key)
				close(inside)
				<-release
				return errors.Join(failed, err)
			})
			held <- err
		}()
		<-inside
		// None of them waits: they are answered while the first one stands in its work.
		for _, d := range others {
			_, executed, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, key) })
			if executed || !errors.Is(err, store.ErrBusy) {
				t.Errorf("beside an attempt in flight: executed %t, error %v; want ErrBusy", executed, err)
			}
			c := claim(key)
			c.Intent = other
			e, executed, err := execute(t.Context(), d, c, func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, key) })
			if executed || err != nil || e.State != reprise.StateInProgress || e.Intent != in {
				t.Errorf("other content beside an attempt in flight: executed %t, %s of %+v, error %v; want what the first one asks for", executed, e.State, e.Intent, err)
			}
		}
		var wg sync.WaitGroup
		var won atomic.Int32
		for n := range 6 {
			wg.Go(func() {
				err := again(t.Context(), func() error {
					_, executed, err := execute(t.Context(), others[n%2], claim(key), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, key) })
					if executed {
						won.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		close(release)
		if err := <-held; !errors.Is(err, failed) {
			t.Errorf("the first one: %v", err)
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d attempts executed, want 1", won.Load())
		}
		b.wantOrders(key, 1)
	}
}

// TestClaimGone ends the transaction from under an attempt, and with it the claim. Its
// result has nothing to stand on then.
func TestClaimGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for name, params := range both {
		for dialect, speak := range map[string]func(*mysql.Driver){"mariadb": func(*mysql.Driver) {}, "mysql": (*mysql.Driver).SpeakMySQL} {
			key := fmt.Sprintf("gone, %s, %s", name, dialect)
			d := b.open(params)
			speak(d)
			_, executed, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(order(ctx, tx, key), d.RollBack(ctx, tx))
			})
			if executed || !errors.Is(err, store.ErrCommitUnknown) {
				t.Errorf("%s: executed %t, error %v; want ErrCommitUnknown", key, executed, err)
			}
			b.wantOrders(key, 0)
			if n := b.number("SELECT COUNT(*) FROM reprise_result WHERE id NOT IN (SELECT id FROM reprise_ledger)"); n != 0 {
				t.Errorf("%s: %d results without a claim", key, n)
			}
			if _, err := d.Resolve(t.Context(), intent(key)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: resolved to %v, want ErrNotFound", key, err)
			}
			// The mirror: the next attempt finds nothing in its way.
			if _, executed, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error {
				return order(ctx, tx, key)
			}); !executed || err != nil {
				t.Errorf("%s: the next attempt: executed %t, error %v", key, executed, err)
			}
			b.wantOrders(key, 1)
		}
	}
}

// TestImplicitCommits sends what MySQL commits for, and checks with the server
// that nothing of the attempt was kept.
func TestImplicitCommits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec("CREATE PROCEDURE p() COMMIT")
	d := b.open(together)
	for n, query := range []string{
		"CREATE TABLE x (y INT)", "CREATE TABLE IF NOT EXISTS orders (y INT)", "TRUNCATE stock", "ALTER TABLE stock ADD x INT", "ANALYZE TABLE stock",
		"LOCK TABLES orders WRITE", "SET autocommit = 1", "CALL p()", "BEGIN", "SET PASSWORD = PASSWORD('')",
		"INSERT INTO orders (ref) VALUES ('ghost'); COMMIT", "SELECT 1 /*! ; COMMIT */", "EXECUTE IMMEDIATE 'COMMIT'",
	} {
		key := fmt.Sprintf("k-%d", n)
		_, executed, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error {
			if err := order(ctx, tx, "ghost"); err != nil {
				return err
			}
			_, _ = tx.ExecContext(ctx, query)
			return nil
		})
		if executed || !errors.Is(err, store.ErrTxMisuse) {
			t.Errorf("%s: executed %t, error %v; want ErrTxMisuse", query, executed, err)
		}
		b.wantOrders("ghost", 0)
	}
	// The mirror: without the guard the server does commit for one of them.
	tx, err := b.plain.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := order(t.Context(), tx, "mirror"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "CALL p()"); err != nil {
		t.Fatal(err)
	}
	_ = tx.Rollback()
	b.wantOrders("mirror", 1)
}
