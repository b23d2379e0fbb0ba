// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/pgxv5"
)

// trips counts round trips on the wire: a message that is sent after something
// was received begins one.
type trips struct {
	mu      sync.Mutex
	n       int
	sending bool
}

func (c *trips) of(do func() error) (n int, err error) {
	c.mu.Lock()
	c.n, c.sending = 0, false
	c.mu.Unlock()
	err = do()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, err
}

func (c *trips) count(sends bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sends && !c.sending {
		c.n++
	}
	c.sending = sends
}

func (c *trips) watch(config *pgxpool.Config) {
	config.MaxConns = 1
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return counted{conn, c}, err
	}
}

type counted struct {
	net.Conn
	trips *trips
}

func (c counted) Write(b []byte) (int, error) {
	c.trips.count(true)
	return c.Conn.Write(b)
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.trips.count(false)
	return n, err
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	c := &trips{}
	s := openShop(t, nil, c.watch)
	order := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertOrder, "order", 1)
		return err
	}
	event := func(ctx context.Context, tx pgx.Tx) error {
		return s.d.Enqueue(ctx, tx, message(string(reprise.NewKey())))
	}
	queue := func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(insertOrder, "order", 1)
		b.Queue("UPDATE orders SET amount = $1 WHERE id = $2", 2, "order")
		return pgxv5.Queue(ctx, tx, b)
	}
	for _, tt := range []struct {
		name string
		work []func(ctx context.Context, tx pgx.Tx) error
		want int
	}{
		{"nothing", nil, 1},
		{"one event", []func(ctx context.Context, tx pgx.Tx) error{event}, 1},
		{"one statement and one event", []func(ctx context.Context, tx pgx.Tx) error{order, event}, 2},
		{"queued statements and one event", []func(ctx context.Context, tx pgx.Tx) error{queue, event}, 1},
		{"two statements", []func(ctx context.Context, tx pgx.Tx) error{order, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE orders SET amount = amount + $1", 1)
			return err
		}}, 3},
		{"queued statements before another", []func(ctx context.Context, tx pgx.Tx) error{queue, func(ctx context.Context, tx pgx.Tx) error {
			var n int
			err := tx.QueryRow(ctx, "SELECT amount FROM orders WHERE id = $1", "order").Scan(&n)
			if err == nil && n != 2 {
				err = errors.New("the query did not see what was queued")
			}
			return err
		}}, 2},
		{"a text of several statements", []func(ctx context.Context, tx pgx.Tx) error{func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ('order', 1); UPDATE orders SET amount = 2; -- and no more")
			return err
		}}, 2},
		{"a batch", []func(ctx context.Context, tx pgx.Tx) error{func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(insertOrder, "order", 1)
			b.Queue(insertOrder, "order-2", 1)
			return tx.SendBatch(ctx, b).Close()
		}}, 2},
		{"a savepoint", []func(ctx context.Context, tx pgx.Tx) error{func(ctx context.Context, tx pgx.Tx) error {
			part, err := tx.Begin(ctx)
			return errors.Join(err, order(ctx, part))
		}}, 2},
	} {
		run := func() error {
			_, executed, err := s.execute(reprise.NewKey(), func(ctx context.Context, tx pgx.Tx) error {
				for _, do := range tt.work {
					if err := do(ctx, tx); err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil && !executed {
				err = errors.New("not executed")
			}
			return err
		}
		var got int
		for range 2 { // The first time statements are prepared.
			if _, err := s.pool.Exec(t.Context(), "DELETE FROM orders"); err != nil {
				t.Fatal(err)
			}
			var err error
			if got, err = c.of(run); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %d round trips, want %d", tt.name, got, tt.want)
		}
		if tt.want > 0 && len(tt.work) > 0 && tt.name != "one event" {
			if s.orders("order%") == 0 {
				t.Errorf("%s: no order", tt.name)
			}
		}
	}

	got, err := c.of(func() error {
		return s.d.Transact(t.Context(), func(context.Context, pgx.Tx) error { return nil })
	})
	if err != nil || got != 0 {
		t.Errorf("a transaction of nothing: %d round trips, error %v", got, err)
	}
	repeat := claimOf("known")
	if _, _, err := s.d.Execute(t.Context(), repeat, func(context.Context, pgx.Tx) (store.Completion, error) { return done(), nil }); err != nil {
		t.Fatal(err)
	}
	repeat.Number = 2
	for range 2 {
		got, err = c.of(func() error {
			_, executed, err := s.d.Execute(t.Context(), repeat, nil)
			if executed {
				t.Error("a repeat was executed")
			}
			return err
		})
	}
	if err != nil || got != 1 {
		t.Errorf("a repeat that says so: %d round trips, error %v; want 1", got, err)
	}
}

// TestDuplicateNeverRuns looks at what the server has executed: the statement of
// a duplicate must not be among it, in whatever form it comes.
func TestDuplicateNeverRuns(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	// A sequence forgets nothing: not even what was rolled back.
	if _, err := s.pool.Exec(t.Context(), "CREATE SEQUENCE ran"); err != nil {
		t.Fatal(err)
	}
	ran := func() (n int64) {
		t.Helper()
		if err := s.pool.QueryRow(t.Context(), "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ran").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const next = "SELECT nextval('ran')"
	forms := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Exec":      func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, next); return err },
		"Exec with": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, next+" + $1", 1); return err },
		"Exec simple": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, next, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"Exec named": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, next+" + @n", pgx.NamedArgs{"n": 1})
			return err
		},
		"Query": func(ctx context.Context, tx pgx.Tx) error {
			r, err := tx.Query(ctx, next)
			r.Close()
			return errors.Join(err, r.Err())
		},
		"Query formatted": func(ctx context.Context, tx pgx.Tx) error {
			r, err := tx.Query(ctx, next, pgx.QueryResultFormats{0})
			r.Close()
			return errors.Join(err, r.Err())
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { var n int64; return tx.QueryRow(ctx, next).Scan(&n) },
		"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(next)
			return tx.SendBatch(ctx, b).Close()
		},
		"Queue": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(next)
			return pgxv5.Queue(ctx, tx, b)
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) {
				_, err := s.pool.Exec(ctx, next)
				return nil, err
			}))
			return err
		},
		"Begin": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, next); return err })
		},
		"LargeObjects": func(ctx context.Context, tx pgx.Tx) error {
			large := tx.LargeObjects()
			_, err := large.Create(ctx, 0)
			if err == nil {
				_, err = s.pool.Exec(ctx, next)
			}
			return err
		},
	}
	for name, form := range forms {
		key := reprise.Key("k-" + name)
		first, executed, err := s.execute(key, form)
		if err != nil || !executed {
			t.Errorf("%s: executed %t, error %v", name, executed, err)
			continue
		}
		before := ran()
		again, executed, err := s.execute(key, form)
		if err != nil || executed || again.Token != first.Token {
			t.Errorf("%s repeated: executed %t, error %v", name, executed, err)
		}
		if after := ran(); after != before || before == 0 {
			t.Errorf("%s repeated: the statement was run (%d, then %d)", name, before, after)
		}
	}
}
