// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

const together = "?multiStatements=true&interpolateParams=true"

// bed is a migrated database with two business tables.
type bed struct {
	*testing.T

	dsn   string
	plain *sql.DB // the application's own access, beside the driver
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dsn := dbtest.MariaDBDatabase(t)
	b := &bed{T: t, dsn: dsn, plain: openDB(t, dsn)}
	b.open(together)
	b.business()
	return b
}

// business makes the application's tables.
func (b *bed) business() {
	b.Helper()
	b.exec("CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, ref VARCHAR(64) NOT NULL)")
	b.exec("CREATE TABLE stock (item VARCHAR(64) PRIMARY KEY, n INT NOT NULL)")
	b.exec("INSERT INTO stock VALUES ('a', 0), ('b', 0)")
}

// open returns a driver as another process has it.
func (b *bed) open(params string) *mysql.Driver {
	b.Helper()
	return newDriver(b, b.dsn+params)
}

func (b *bed) exec(query string) {
	b.Helper()
	if _, err := b.plain.ExecContext(b.Context(), query); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
}

// number runs a query for one number, of what is committed.
func (b *bed) number(query string) (n int) {
	b.Helper()
	if err := b.plain.QueryRowContext(b.Context(), query).Scan(&n); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return n
}

func (b *bed) wantOrders(ref string, want int) {
	b.Helper()
	if n := b.number("SELECT COUNT(*) FROM orders WHERE ref = '" + ref + "'"); n != want {
		b.Errorf("%d orders %q were committed, want %d", n, ref, want)
	}
}

// order is the business of a request.
func order(ctx context.Context, tx *sql.Tx, ref string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (ref) VALUES ('"+ref+"')")
	return err
}

func intent(key string) reprise.Intent {
	in := reprise.Intent{Caller: "alice", Operation: "create-order", Key: reprise.Key(key)}
	in.Fingerprint[0] = reprise.FingerprintVersion
	return in
}

func claim(key string) store.Claim {
	return store.Claim{Intent: intent(key), Token: store.NewToken(), Number: 1}
}

func completion() store.Completion {
	return store.Completion{
		Result:    reprise.Result{Status: 201, Body: []byte("created"), Reference: "/orders/1"},
		Retention: time.Hour, Tombstone: 2 * time.Hour,
	}
}

// execute runs one attempt that does its work in do.
func execute(ctx context.Context, d *mysql.Driver, c store.Claim, do func(ctx context.Context, tx *sql.Tx) error) (store.Entry, bool, error) {
	return d.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		return completion(), do(ctx, tx)
	})
}

// again repeats fn for as long as another transaction is in its way.
func again(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func event(id, subject string) reprise.Message {
	return reprise.Message{
		ID: id, Source: "/shop", Type: "order.created", Subject: subject,
		Time: time.Now(), ContentType: "application/json", Data: []byte("{}"),
	}
}
