// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/pgxv5"
)

func openPool(tb testing.TB, dsn string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns = 8
	for _, fn := range change {
		fn(config)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// openDriver returns a driver with a pool of its own, migrated.
func openDriver(tb testing.TB, dsn string, o *pgxv5.Options, change ...func(*pgxpool.Config)) (d *pgxv5.Driver, stop func()) {
	tb.Helper()
	d, err := pgxv5.New(tb.Context(), openPool(tb, dsn, change...), o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := migrate.Up(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	return d, func() {
		if err := d.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	}
}

// shop is a database with a table of orders, and a driver on it.
type shop struct {
	*testing.T

	dsn  string
	d    *pgxv5.Driver
	pool *pgxpool.Pool // not the driver's
}

func openShop(t *testing.T, o *pgxv5.Options, change ...func(*pgxpool.Config)) *shop {
	t.Helper()
	s := &shop{T: t, dsn: dbtest.PostgresDatabase(t)}
	d, stop := openDriver(t, s.dsn, o, change...)
	t.Cleanup(stop)
	s.d, s.pool = d, openPool(t, s.dsn)
	if _, err := s.pool.Exec(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY, amount int CHECK (amount > 0))"); err != nil {
		t.Fatal(err)
	}
	return s
}

// orders counts the orders with an id like this.
func (s *shop) orders(like string) (n int) {
	s.Helper()
	if err := s.pool.QueryRow(s.Context(), "SELECT count(*) FROM orders WHERE id LIKE $1", like).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *shop) wantOrders(like string, want int) {
	s.Helper()
	if got := s.orders(like); got != want {
		s.Errorf("%d orders like %q, want %d", got, like, want)
	}
}

const insertOrder = "INSERT INTO orders (id, amount) VALUES ($1, $2)"

// claimOf is a first attempt.
func claimOf(key reprise.Key) store.Claim {
	return store.Claim{
		Intent: reprise.Intent{Caller: "alice", Operation: "create-order", Key: key, Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 1}},
		Token:  store.NewToken(), Number: 1,
	}
}

func done() store.Completion {
	return store.Completion{
		Result:    reprise.Result{Status: 201, Body: []byte(`{"ok":true}`), Reference: "/orders/1"},
		Retention: time.Hour, Tombstone: 24 * time.Hour,
	}
}

// execute runs work under key.
func (s *shop) execute(key reprise.Key, work func(ctx context.Context, tx pgx.Tx) error) (store.Entry, bool, error) {
	return s.d.Execute(s.Context(), claimOf(key), func(ctx context.Context, tx pgx.Tx) (store.Completion, error) {
		return done(), work(ctx, tx)
	})
}

func message(id string) reprise.Message {
	return reprise.Message{ID: id, Source: "/orders", Type: "order.created", Subject: "orders", Time: time.Now(), Data: []byte("{}")}
}

// age rewrites every time that the driver has stored in order to judge by it.
func age(by time.Duration) (statements []string) {
	for _, columns := range []string{
		"reprise_ledger lease_until claimed_at completed_at expires_at tombstone_until due_at", "reprise_inbox received_at",
		"reprise_outbox enqueued_at", "reprise_outbox_hold next_at", "reprise_outbox_slot lease_until",
	} {
		table, names, _ := strings.Cut(columns, " ")
		for name := range strings.FieldsSeq(names) {
			statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s - %d * interval '1 microsecond'", table, name, name, by.Microseconds()))
		}
	}
	return statements
}
