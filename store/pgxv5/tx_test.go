// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/pgxv5"
)

// TestWholeTx uses everything that a pgx.Tx has, as handlers and the tools they
// use do.
func TestWholeTx(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	var oid uint32
	_, executed, err := s.execute("whole", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES (@id, @amount)", pgx.NamedArgs{"id": "a", "amount": 1}); err != nil {
			return err
		}
		if _, err := tx.Prepare(ctx, "add", insertOrder); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "add", "b", 2); err != nil {
			return err
		}
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "amount"}, pgx.CopyFromRows([][]any{{"c", 3}, {"d", 4}}))
		if err != nil || n != 2 {
			return errors.Join(err, errors.New("CopyFrom"))
		}
		type order struct {
			ID     string
			Amount int32
		}
		rows, _ := tx.Query(ctx, "SELECT id, amount FROM orders WHERE amount >= $1 ORDER BY id", 2)
		orders, err := pgx.CollectRows(rows, pgx.RowToStructByName[order])
		if err != nil || len(orders) != 3 || orders[2] != (order{"d", 4}) {
			t.Errorf("CollectRows: %v, %v", orders, err)
		}
		sum, missing := 0, error(nil)
		b := &pgx.Batch{}
		b.Queue("SELECT sum(amount) FROM orders").QueryRow(func(row pgx.Row) error { return row.Scan(&sum) })
		b.Queue("SELECT amount FROM orders WHERE id = $1", "nobody").QueryRow(func(row pgx.Row) error {
			missing = row.Scan(new(int))
			return nil
		})
		b.Queue("UPDATE orders SET amount = 5 WHERE id = 'd'").Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != 1 {
				t.Errorf("UPDATE changed %d rows", tag.RowsAffected())
			}
			return nil
		})
		if err := tx.SendBatch(ctx, b).Close(); err != nil || sum != 10 || !errors.Is(missing, pgx.ErrNoRows) {
			t.Errorf("SendBatch: sum %d, missing %v, error %v", sum, missing, err)
		}
		large := tx.LargeObjects()
		if oid, err = large.Create(ctx, 0); err != nil {
			return err
		}
		object, err := large.Open(ctx, oid, pgx.LargeObjectModeWrite)
		if err != nil {
			return err
		}
		_, err = io.WriteString(object, "large")
		return err
	})
	if err != nil || !executed {
		t.Fatalf("executed %t, error %v", executed, err)
	}
	s.wantOrders("_", 4)
	var size int
	if err := s.pool.QueryRow(t.Context(), "SELECT length(lo_get($1))", oid).Scan(&size); err != nil || size != 5 {
		t.Errorf("the large object has %d bytes, error %v", size, err)
	}
}

// TestSavepoints rolls parts of a transaction back, and errors with them.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	insert := func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, insertOrder, id, 1)
		return err
	}
	_, executed, err := s.execute("parts", func(ctx context.Context, tx pgx.Tx) error {
		if err := insert(ctx, tx, "kept"); err != nil {
			return err
		}
		failed := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return errors.Join(insert(ctx, tx, "dropped"), insert(ctx, tx, "kept"))
		})
		if failed == nil {
			t.Error("the duplicate order was accepted")
		}
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				return errors.Join(insert(ctx, tx, "dropped too"), errors.New("no"))
			})
			return insert(ctx, tx, "kept too")
		})
	})
	if err != nil || !executed {
		t.Fatalf("executed %t, error %v", executed, err)
	}
	s.wantOrders("kept%", 2)
	s.wantOrders("dropped%", 0)

	// The mirrors: an error that no savepoint covers, and one that is not undone.
	for name, work := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"before": func(ctx context.Context, tx pgx.Tx) error {
			part, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if err := part.Commit(ctx); err != nil {
				return err
			}
			_ = insert(ctx, tx, "kept")
			_ = part.Rollback(ctx)
			return nil
		},
		"open": func(ctx context.Context, tx pgx.Tx) error {
			part, _ := tx.Begin(ctx)
			_ = insert(ctx, part, "kept")
			return nil
		},
	} {
		_, executed, err := s.execute(reprise.Key(name), work)
		if executed || !errors.Is(err, store.ErrTxMisuse) {
			t.Errorf("%s: executed %t, error %v; want ErrTxMisuse", name, executed, err)
		}
	}
}

// TestConnIsHollow tries what a handler could do with the connection.
func TestConnIsHollow(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	_, executed, err := s.execute("hollow", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT 1")
		if err != nil {
			return err
		}
		conns := []*pgx.Conn{tx.Conn(), rows.Conn()}
		rows.Close()
		part, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, part.Conn())
		b := &pgx.Batch{}
		b.Queue("SELECT 1").Query(func(rows pgx.Rows) error {
			conns = append(conns, rows.Conn())
			return nil
		})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		for i, conn := range conns {
			if _, err := conn.Exec(ctx, "COMMIT"); err == nil {
				t.Errorf("connection %d takes statements", i)
			}
			if _, ok := conn.TypeMap().TypeForName("jsonb"); !ok || conn.Config() == nil {
				t.Errorf("connection %d can't be read", i)
			}
		}
		_, err = tx.Exec(ctx, insertOrder, "a", 1)
		return err
	})
	if err != nil || !executed {
		t.Fatalf("executed %t, error %v", executed, err)
	}
	s.wantOrders("a", 1)
}

// TestLeftBehind keeps everything that a handler can get hold of and uses it from
// another goroutine after the handler has returned.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	var late []func() error
	_, executed, err := s.execute("left", func(ctx context.Context, tx pgx.Tx) error {
		part, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		large := tx.LargeObjects()
		rows, err := tx.Query(ctx, "SELECT generate_series(1, 1000)")
		if err != nil || !rows.Next() {
			return errors.Join(err, errors.New("no rows"))
		}
		ctx = context.WithoutCancel(ctx)
		for _, tx := range []pgx.Tx{tx, part} {
			late = append(late,
				func() error { _, err := tx.Exec(ctx, insertOrder, "late", 1); return err },
				func() error { _, err := tx.Query(ctx, "SELECT 1"); return err },
				func() error { return tx.QueryRow(ctx, "SELECT 1").Scan(new(int)) },
				func() error { _, err := tx.Begin(ctx); return err },
				func() error { _, err := tx.Prepare(ctx, "late", "SELECT 1"); return err },
				func() error {
					_, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id"}, pgx.CopyFromRows([][]any{{"late"}}))
					return err
				},
				func() error { b := &pgx.Batch{}; b.Queue(insertOrder, "late", 1); return tx.SendBatch(ctx, b).Close() },
				func() error { b := &pgx.Batch{}; b.Queue(insertOrder, "late", 1); return pgxv5.Queue(ctx, tx, b) },
				func() error { return tx.Commit(ctx) },
				func() error { return tx.Rollback(ctx) },
				func() error { large := tx.LargeObjects(); _, err := large.Create(ctx, 0); return err },
			)
		}
		late = append(late,
			func() error { _, err := large.Create(ctx, 0); return err },
			func() error {
				for rows.Next() {
				}
				return rows.Err()
			})
		return nil
	})
	if err != nil || !executed {
		t.Fatalf("executed %t, error %v", executed, err)
	}
	var wg sync.WaitGroup
	for n, do := range late {
		wg.Go(func() {
			if do() == nil {
				t.Errorf("%d still works after the handler has returned", n)
			}
		})
	}
	wg.Wait()
	s.wantOrders("late", 0)
}

// TestQueue fails in statements for whose answers nobody waits.
func TestQueue(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	queue := func(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
		b := &pgx.Batch{}
		b.Queue(sql, args...)
		return pgxv5.Queue(ctx, tx, b)
	}
	const procedure = "CREATE PROCEDURE ends() LANGUAGE plpgsql AS 'BEGIN INSERT INTO orders VALUES (''escaped'', 1); COMMIT; END'"
	if _, err := s.pool.Exec(t.Context(), procedure); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"violates":  "INSERT INTO orders VALUES ('x', -1)",
		"malformed": "INSERT INTO no_such_table VALUES (1)",
		"commits":   "COMMIT",
		"calls":     "CALL ends()",
	} {
		_, executed, err := s.execute(reprise.Key(name), func(ctx context.Context, tx pgx.Tx) error {
			_ = s.d.Enqueue(ctx, tx, message(name))
			_ = queue(ctx, tx, insertOrder, name, 1)
			_ = queue(ctx, tx, bad)
			return nil
		})
		if executed || err == nil || errors.Is(err, store.ErrCommitUnknown) {
			t.Errorf("%s: executed %t, error %v; want to be told that nothing was kept", name, executed, err)
		}
		if _, err := s.d.Find(t.Context(), claimOf(reprise.Key(name)).Intent); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: find: %v, want ErrNotFound", name, err)
		}
	}
	s.wantOrders("%", 0)
	if b, err := s.d.Relay().Backlog(t.Context()); err != nil || b.Waiting != 0 {
		t.Errorf("backlog %+v, error %v", b, err)
	}
	withCallback := &pgx.Batch{}
	withCallback.Queue("SELECT 1").Exec(func(pgconn.CommandTag) error { return nil })
	_, _, err := s.execute("callback", func(ctx context.Context, tx pgx.Tx) error { return pgxv5.Queue(ctx, tx, withCallback) })
	if err == nil {
		t.Error("a batch with a callback was queued")
	}
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if err := queue(t.Context(), tx, "SELECT 1"); !errors.Is(err, store.ErrTxMisuse) {
		t.Errorf("queued in a foreign transaction: %v", err)
	}
}

// TestConcurrentQueues lets many one-shot attempts at one intent meet.
func TestConcurrentQueues(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	var wg sync.WaitGroup
	ran := make(chan struct{}, 64)
	for range 16 {
		wg.Go(func() {
			for {
				_, executed, err := s.execute("one", func(ctx context.Context, tx pgx.Tx) error {
					b := &pgx.Batch{}
					b.Queue(insertOrder, string(reprise.NewKey()), 1)
					return errors.Join(pgxv5.Queue(ctx, tx, b), s.d.Enqueue(ctx, tx, message("one")))
				})
				if executed {
					ran <- struct{}{}
				}
				if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrConflict) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	if len(ran) != 1 {
		t.Errorf("%d attempts say that they executed", len(ran))
	}
	s.wantOrders("%", 1)
}
