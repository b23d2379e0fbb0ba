// SPDX-License-Identifier: Apache-2.0

// Package pgtest proves what a service owes to its driver for PostgreSQL when
// processes, connections and whole servers die under it. store/storetest proves
// what any database can; what is here needs PostgreSQL's own sessions, and each of
// its drivers runs all of it:
//
//	var harness = pgtest.Harness[*sql.Tx]{Open: open, Number: number}
//
//	func TestMain(m *testing.M) {
//		pgtest.Own(harness)
//		os.Exit(dbtest.Main(m))
//	}
//
//	func TestHotKey(t *testing.T) { t.Parallel(); pgtest.HotKey(t, harness) }
//
// Effects are counted by a connection that is not the driver's: orders, their
// events and the ledger's records. A fault that did not strike fails the test. The
// test binary has to register pgx with database/sql, as "pgx".
package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
)

// patience bounds what hangs, not what is slow.
const patience = 5 * time.Minute

// Driver is what a driver for PostgreSQL is.
type Driver[TTx any] interface {
	store.Driver[TTx]
	migrate.Database
}

// Harness is how the proofs reach a driver. Both fields are required, and may be
// called from several tests at once.
type Harness[TTx any] struct {
	// Open returns a driver with a pool of its own, as a process has it. stop closes
	// both, and is called once.
	Open func(ctx context.Context, dsn string, o Options) (d Driver[TTx], stop func(), err error)
	// Number runs a statement in a transaction, with arguments for $1 and so on, and
	// returns the number that is its only row. Its errors are the database's.
	Number func(ctx context.Context, tx TTx, statement string, args ...any) (int64, error)
}

// Options of a driver and of its pool. The zero value is sound.
type Options struct {
	// Connections is how many the pool has at most. Defaults to 4.
	Connections int
	// DurableReplay is the driver's option.
	DurableReplay bool
	// Route, if not nil, names the data source of each connection in the place of
	// the one given to Open, and no connection serves two transactions.
	Route func() (dsn string)
}

const schema = "CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, ref text NOT NULL)"

// service is one process of a service: a ledger over its own pool. It takes
// orders, and nothing but the ledger keeps it from taking one twice.
type service[TTx any] struct {
	harness Harness[TTx]
	driver  Driver[TTx]
	ledger  *ledger.Ledger[TTx]
}

// start starts a process on a database that has its tables.
func (h Harness[TTx]) start(ctx context.Context, dsn string, o Options, c *ledger.Config) (s *service[TTx], stop func(), err error) {
	if o.Connections == 0 {
		o.Connections = 4
	}
	d, stop, err := h.Open(ctx, dsn, o)
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.New[TTx](d, c)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return &service[TTx]{harness: h, driver: d, ledger: l}, stop, nil
}

// open is start for a test. The first process on a database makes its tables.
func (h Harness[TTx]) open(t *testing.T, dsn string, o Options, c *ledger.Config) *service[TTx] {
	t.Helper()
	s, stop, err := h.start(t.Context(), dsn, o, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := migrate.Up(t.Context(), s.driver); err != nil {
		t.Fatal(err)
	}
	observe(t, dsn).exec(schema)
	return s
}

// intent is that of an order. An order's reference is also its key.
func intent(ref reprise.Key) reprise.Intent {
	return reprise.Intent{
		Caller: "alice", Operation: "create-order", Key: ref,
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 1},
	}
}

// work writes an order and its event, and calls each hook in between.
func (s *service[TTx]) work(ref reprise.Key, hooks ...func(ctx context.Context, tx TTx) error) ledger.Work[TTx] {
	return func(ctx context.Context, tx TTx) (reprise.Result, error) {
		id, err := s.harness.Number(ctx, tx, "INSERT INTO orders (ref) VALUES ($1) RETURNING id", string(ref))
		if err != nil {
			return reprise.Result{}, err
		}
		for _, hook := range hooks {
			if err := hook(ctx, tx); err != nil {
				return reprise.Result{}, err
			}
		}
		err = s.driver.Enqueue(ctx, tx, reprise.Message{
			ID: fmt.Sprintf("order-%d", id), Source: "/shop", Type: "order.created", Time: time.Now(), Data: []byte("{}"),
		})
		return reprise.Result{Status: 201, Body: fmt.Appendf(nil, "order %d", id)}, err
	}
}

// do is one attempt at an order, by a client who waits as long as the test does.
func (s *service[TTx]) do(ref reprise.Key, hooks ...func(ctx context.Context, tx TTx) error) (ledger.Answer, error) {
	return s.ledger.Do(context.Background(), intent(ref), ledger.Options{Wait: patience}, s.work(ref, hooks...))
}

// observer looks at a database by a connection that is not the driver's.
type observer struct {
	t  *testing.T
	db *sql.DB
}

func observe(t *testing.T, dsn string) *observer {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &observer{t: t, db: db}
}

func (o *observer) exec(statement string) {
	o.t.Helper()
	if _, err := o.db.ExecContext(o.t.Context(), statement); err != nil {
		o.t.Fatalf("%s: %v", statement, err)
	}
}

// number runs a query for one number.
func (o *observer) number(query string) (n int) {
	o.t.Helper()
	if err := o.db.QueryRowContext(o.t.Context(), query).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// effects fails the test unless there are so many references that each have one
// order, one event and one record.
func (o *observer) effects(orders int) {
	o.t.Helper()
	for what, query := range map[string]string{
		"references with an order": "SELECT count(DISTINCT ref) FROM orders",
		"orders":                   "SELECT count(*) FROM orders",
		"events":                   "SELECT count(*) FROM reprise_outbox",
		"records in the ledger":    "SELECT count(*) FROM reprise_ledger WHERE completed_at IS NOT NULL",
	} {
		if n := o.number(query); n != orders {
			o.t.Errorf("%d %s, want %d", n, what, orders)
		}
	}
}

// eventually waits until the condition, which nothing announces, holds.
func (o *observer) eventually(what string, holds func() bool) {
	o.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			o.t.Fatalf("waited in vain until %s", what)
		}
	}
}
