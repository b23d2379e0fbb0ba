// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/postgres"
)

// shop is one process of a service: a ledger over its own pool, with the rows of
// a small business beside it.
type shop struct {
	t      testing.TB
	db     *sql.DB
	driver *postgres.Driver
	ledger *ledger.Ledger[*sql.Tx]
}

// openShop opens a process with a pool of so many connections. The first on a
// database makes its tables.
func openShop(tb testing.TB, dsn string, pool int, o *postgres.Options, c *ledger.Config) *shop {
	tb.Helper()
	db := openDB(tb, dsn)
	db.SetMaxOpenConns(pool)
	d := mustNew(tb, db, o)
	if err := migrate.Up(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	if _, err := db.ExecContext(tb.Context(), "CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, ref text NOT NULL)"); err != nil {
		tb.Fatal(err)
	}
	l, err := ledger.New[*sql.Tx](d, c)
	if err != nil {
		tb.Fatal(err)
	}
	return &shop{t: tb, db: db, driver: d, ledger: l}
}

func order(key reprise.Key) reprise.Intent {
	return reprise.Intent{
		Caller: "alice", Operation: "create-order", Key: key,
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 1},
	}
}

// ordering writes an order and its event, and calls each hook in between. Nothing
// but the ledger keeps it from writing two.
func (s *shop) ordering(ref reprise.Key, hooks ...func(ctx context.Context, tx *sql.Tx) error) ledger.Work[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		var id int64
		if err := tx.QueryRowContext(ctx, "INSERT INTO orders (ref) VALUES ('"+string(ref)+"') RETURNING id").Scan(&id); err != nil {
			return reprise.Result{}, err
		}
		for _, hook := range hooks {
			if err := hook(ctx, tx); err != nil {
				return reprise.Result{}, err
			}
		}
		err := s.driver.Enqueue(ctx, tx, reprise.Message{
			ID: fmt.Sprintf("order-%d", id), Source: "/shop", Type: "order.created", Time: time.Now(), Data: []byte("{}"),
		})
		return reprise.Result{Status: 201, Body: fmt.Appendf(nil, "order %d", id)}, err
	}
}

// do is one attempt at an order, by a client who waits as long as the test does.
func (s *shop) do(ref reprise.Key, hooks ...func(ctx context.Context, tx *sql.Tx) error) (ledger.Answer, error) {
	return s.ledger.Do(context.Background(), order(ref), ledger.Options{Wait: time.Minute}, s.ordering(ref, hooks...))
}

// number runs a query for one number, on a connection of its own.
func number(tb testing.TB, dsn, query string) int {
	tb.Helper()
	var n int
	if err := openDB(tb, dsn).QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// effects fails the test unless each of so many references has one order, and
// each order one event.
func effects(tb testing.TB, dsn string, orders int) {
	tb.Helper()
	if n := number(tb, dsn, "SELECT count(DISTINCT ref) FROM orders"); n != orders {
		tb.Errorf("%d references have orders, want %d", n, orders)
	}
	if n := number(tb, dsn, "SELECT count(*) FROM orders"); n != orders {
		tb.Errorf("%d orders, want %d", n, orders)
	}
	if n := number(tb, dsn, "SELECT count(*) FROM reprise_outbox"); n != orders {
		tb.Errorf("%d events, want %d", n, orders)
	}
}

// eventually waits until the condition, which nothing announces, holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("waited in vain until %s", what)
		}
	}
}
