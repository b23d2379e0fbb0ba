// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/pgtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/pgxv5"
)

// queued is a handler that leaves one statement to the last message.
func queued(sql string, args ...any) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(sql, args...)
		return pgxv5.Queue(ctx, tx, b)
	}
}

// waitsForLock waits until a session waits for a lock of the kind.
func (s *shop) waitsForLock(kind string) {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var n int
		err := s.pool.QueryRow(s.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = $1", kind).Scan(&n)
		if err != nil {
			s.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	s.Fatalf("nobody waits for a lock of kind %q", kind)
}

// TestOneMessageClaims holds up a transaction that is one message. Meanwhile its
// intent is claimed as any other: others are turned away at once, and who asks what
// became of it waits for the answer.
func TestOneMessageClaims(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{"cached": pgx.QueryExecModeCacheStatement, "simple": pgx.QueryExecModeSimpleProtocol} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			if _, err := s.pool.Exec(t.Context(), "INSERT INTO orders VALUES ('stock', 5)"); err != nil {
				t.Fatal(err)
			}
			jam, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = jam.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := jam.Exec(t.Context(), "UPDATE orders SET amount = 4 WHERE id = 'stock'"); err != nil {
				t.Fatal(err)
			}
			mine := claimOf("k")
			held := make(chan error, 1)
			go func() {
				_, executed, err := s.d.Execute(t.Context(), mine, func(ctx context.Context, tx pgx.Tx) (store.Completion, error) {
					return done(), queued("UPDATE orders SET amount = amount - 1 WHERE id = $1", "stock")(ctx, tx)
				})
				if err == nil && !executed {
					err = errors.New("it was not executed")
				}
				held <- err
			}()
			s.waitsForLock("transactionid")

			for what, work := range map[string]func(ctx context.Context, tx pgx.Tx) error{
				"queued": queued(insertOrder, "twice", 1),
				"sent": func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insertOrder, "twice", 1)
					return err
				},
			} {
				if _, executed, err := s.execute("k", work); !errors.Is(err, store.ErrBusy) {
					t.Errorf("beside it, %s: executed %t, error %v; want ErrBusy", what, executed, err)
				}
			}
			other := claimOf("k")
			other.Intent.Fingerprint[1] = 2
			e, executed, err := s.d.Execute(t.Context(), other, func(ctx context.Context, tx pgx.Tx) (store.Completion, error) {
				return done(), queued(insertOrder, "twice", 1)(ctx, tx)
			})
			if err != nil || executed || e.State != reprise.StateInProgress {
				t.Errorf("other content beside it: executed %t, state %q, error %v; want it in progress", executed, e.State, err)
			}

			resolved := make(chan error, 1)
			go func() {
				e, err := s.d.Resolve(t.Context(), mine.Intent)
				if err == nil && e.Token != mine.Token {
					err = errors.New("the record is of another attempt")
				}
				resolved <- err
			}()
			s.waitsForLock("advisory")
			select {
			case err := <-resolved:
				t.Errorf("it was decided while it was under way: %v", err)
			default:
			}
			if err := jam.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(<-held, <-resolved); err != nil {
				t.Error(err)
			}
			s.wantOrders("twice", 0)
			s.wantOrders("stock", 1)
			var amount int
			if err := s.pool.QueryRow(t.Context(), "SELECT amount FROM orders WHERE id = 'stock'").Scan(&amount); err != nil || amount != 4 {
				t.Errorf("the stock is %d, error %v; want that it was taken from once", amount, err)
			}
		})
	}
}

// TestOneMessageComesTooLate holds the message back until its client has asked what
// became of it: what was told then stays true.
func TestOneMessageComesTooLate(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	p, through := pgtest.StartProxy(t, s.dsn)
	d, stop := openDriver(t, through, nil)
	t.Cleanup(stop)
	ordering := func(c store.Claim) (executed bool, err error) {
		_, executed, err = d.Execute(t.Context(), c, func(ctx context.Context, tx pgx.Tx) (store.Completion, error) {
			return done(), queued(insertOrder, string(c.Intent.Key)+" "+string(reprise.NewKey()), 1)(ctx, tx)
		})
		return executed, err
	}
	if executed, err := ordering(claimOf("first")); err != nil || !executed { // Statements are prepared.
		t.Fatalf("executed %t, error %v", executed, err)
	}
	var late *pgtest.Link
	var message []byte
	fired := p.Arm("VALUES ($1, $2)", func(l *pgtest.Link, m []byte) {
		late, message = l, m
		l.Leave()
	})
	mine := claimOf("late")
	if executed, err := ordering(mine); executed || !errors.Is(err, store.ErrCommitUnknown) {
		t.Fatalf("executed %t, error %v; want ErrCommitUnknown", executed, err)
	}
	fired()
	if e, err := s.d.Resolve(t.Context(), mine.Intent); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("state %q, error %v; want ErrNotFound", e.State, err)
	}
	late.Finish(message)
	<-late.Over()
	s.wantOrders("late %", 0)
	if e, err := s.d.Find(t.Context(), mine.Intent); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record was made too late: state %q, error %v", e.State, err)
	}
	if n, err := s.d.Purge(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("a purge changed %d, error %v", n, err)
	}
	// The intent is free, for once, and without the proxy too.
	for n := range 3 {
		_, executed, err := s.execute("late", queued(insertOrder, "late again", 1))
		if err != nil || executed != (n == 0) {
			t.Errorf("attempt %d: executed %t, error %v", n, executed, err)
		}
	}
	s.wantOrders("late %", 1)
	s.wantOrders("%", 2)
}

// TestArgumentsThatCantBeSent are a mistake of the handler, which nothing is done
// for, and no outage: work is not run again for it, and no other handler suffers.
func TestArgumentsThatCantBeSent(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"cached": pgx.QueryExecModeCacheStatement, "described": pgx.QueryExecModeDescribeExec,
		"exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			bad := struct{ C chan int }{}
			for form, work := range map[string]func(ctx context.Context, tx pgx.Tx) error{
				"Exec": func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insertOrder, "bad", bad)
					return err
				},
				"Queue": queued(insertOrder, "bad", bad),
			} {
				ran := 0
				_, executed, err := s.execute(reprise.Key(form), func(ctx context.Context, tx pgx.Tx) error {
					ran++
					return work(ctx, tx)
				})
				if executed || err == nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCommitUnknown) {
					t.Errorf("%s: executed %t, error %v; want the handler's own", form, executed, err)
				}
				if ran != 1 {
					t.Errorf("%s: work was run %d times", form, ran)
				}
				if _, executed, err := s.execute(reprise.Key(form), queued(insertOrder, "good "+form, 1)); err != nil || !executed {
					t.Errorf("%s, then mended: executed %t, error %v", form, executed, err)
				}
			}
			s.wantOrders("bad", 0)
			s.wantOrders("good %", 2)
		})
	}
}

// TestQueueTakesSingleStatements: the answers to several in one text could not be
// told from those to what follows.
func TestQueueTakesSingleStatements(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	for _, sql := range []string{"INSERT INTO orders VALUES ('a', 1); INSERT INTO orders VALUES ('b', 1)", "", "-- nothing"} {
		if _, executed, err := s.execute("k", queued(sql)); err == nil || executed {
			t.Errorf("%q: executed %t, error %v; want it refused", sql, executed, err)
		}
	}
	s.wantOrders("%", 0)
	if _, executed, err := s.execute("k", queued("INSERT INTO orders VALUES ('c', 1); -- and no more")); err != nil || !executed {
		t.Errorf("one statement: executed %t, error %v", executed, err)
	}
	s.wantOrders("%", 1)
}
