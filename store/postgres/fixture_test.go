// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/postgres"
)

// patience bounds everything that must come to pass.
const patience = 5 * time.Minute

// fixture is a migrated schema with a business table, a driver on it, and a
// connection that is not the driver's.
type fixture struct {
	*postgres.Driver
	t     *testing.T
	ctx   context.Context
	dsn   string
	db    *sql.DB // the driver's
	plain *sql.DB
}

// setup takes parameters of the driver's sessions, such as
// "default_transaction_isolation=serializable".
func setup(t *testing.T, o *postgres.Options, parameters ...string) *fixture {
	t.Helper()
	dsn := createSchema(t)
	plain := openDB(t, dsn)
	return setupOn(t, o, dsn, plain, openDB(t, with(dsn, parameters...)))
}

func setupOn(t *testing.T, o *postgres.Options, dsn string, plain, db *sql.DB) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	f := &fixture{t: t, ctx: ctx, dsn: dsn, plain: plain, db: db}
	f.exec("CREATE TABLE orders (ref text PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	f.Driver = mustNew(t, db, o)
	if err := migrate.Up(ctx, f.Driver); err != nil {
		t.Fatal(err)
	}
	return f
}

// with adds parameters to a URL.
func with(dsn string, parameters ...string) string {
	for _, p := range parameters {
		u, err := url.Parse(dsn)
		if err != nil {
			panic(err)
		}
		q, _ := url.ParseQuery(p)
		values := u.Query()
		for name := range q {
			values.Set(name, q.Get(name))
		}
		u.RawQuery = strings.ReplaceAll(values.Encode(), "+", "%20")
		dsn = u.String()
	}
	return dsn
}

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	if _, err := f.plain.ExecContext(f.ctx, query, args...); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
}

func (f *fixture) count(query string, args ...any) (n int) {
	f.t.Helper()
	if err := f.plain.QueryRowContext(f.ctx, query, args...).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// want fails unless there are so many orders with the reference, and records of
// the intent.
func (f *fixture) want(in reprise.Intent, orders, records int) {
	f.t.Helper()
	id := in.ID()
	if n := f.count("SELECT count(*) FROM orders WHERE ref = $1", string(in.Key)); n != orders {
		f.t.Errorf("%d orders of %q, want %d", n, in.Key, orders)
	}
	if n := f.count("SELECT count(*) FROM reprise_ledger WHERE uuid_send(id) = $1", id[:]); n != records {
		f.t.Errorf("%d records of %q, want %d", n, in.Key, records)
	}
}

// until polls for what another session is about to do.
func (f *fixture) until(what string, done func() bool) {
	f.t.Helper()
	for !done() {
		select {
		case <-f.ctx.Done():
			f.t.Fatalf("waited in vain until %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func intent(key reprise.Key) reprise.Intent {
	return reprise.Intent{Caller: "alice", Operation: "create-order", Key: key, Fingerprint: reprise.Fingerprint{1, 1}}
}

func other(in reprise.Intent) reprise.Intent {
	in.Fingerprint[1]++
	return in
}

func claim(in reprise.Intent) store.Claim {
	return store.Claim{Intent: in, Token: store.NewToken(), Number: 1}
}

func completion(c store.Claim) store.Completion {
	return store.Completion{
		Result:    reprise.Result{Status: 201, Body: []byte("order of " + c.Intent.Key), Reference: "/orders/" + string(c.Intent.Key)},
		Retention: time.Hour, Tombstone: 24 * time.Hour,
	}
}

func insert(ctx context.Context, tx *sql.Tx, in reprise.Intent) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (ref) VALUES ($1)", string(in.Key))
	return err
}

// order executes an attempt that makes an order, and then more.
func (f *fixture) order(ctx context.Context, c store.Claim, more func(ctx context.Context, tx *sql.Tx) error) (store.Entry, bool, error) {
	return f.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		err := insert(ctx, tx, c.Intent)
		if err == nil && more != nil {
			err = more(ctx, tx)
		}
		return completion(c), err
	})
}

func (f *fixture) mustOrder(in reprise.Intent) store.Entry {
	f.t.Helper()
	e, executed, err := f.order(f.ctx, claim(in), nil)
	if err != nil || !executed {
		f.t.Fatalf("order %q: executed %t, error %v", in.Key, executed, err)
	}
	return e
}

func message(id, subject string) reprise.Message {
	return reprise.Message{ID: id, Source: "/shop", Type: "order.created", Subject: subject, Time: time.Unix(1, 0), Data: []byte("{}")}
}

// enqueue commits messages.
func (f *fixture) enqueue(messages ...reprise.Message) {
	f.t.Helper()
	if err := f.Transact(f.ctx, func(ctx context.Context, tx *sql.Tx) error { return f.Enqueue(ctx, tx, messages...) }); err != nil {
		f.t.Fatal(err)
	}
}

var errHandler = errors.New("the handler failed")
