// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// Options of a Driver. The zero value is sound.
type Options struct {
	// Isolation of handlers' transactions. Defaults to the database's own default,
	// which is READ COMMITTED unless it was changed. At every level a transaction
	// that loses a conflict ends in store.ErrConflict and is run again.
	Isolation pgx.TxIsoLevel
	// DeliveredRetention is how long messages stay in reprise_outbox after their
	// delivery, counted from their enqueueing, for people to look at. Defaults to 0:
	// they go with the delivery.
	DeliveredRetention time.Duration
	// DurableReplay makes an answer from a record wait until that record is as
	// durable as a new commit would be, at the price of a commit for each such
	// answer. It is for synchronous standbys: a commit whose wait for the standby was
	// cancelled can be read, and is lost with the server. Defaults to false.
	DurableReplay bool
}

func (o *Options) check() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.DeliveredRetention < 0 {
		return out, fmt.Errorf("pgxv5: Options.DeliveredRetention is %v; use 0 to keep nothing", out.DeliveredRetention)
	}
	switch out.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		return out, nil
	case pgx.ReadUncommitted: // PostgreSQL has it in name only
	}
	return out, fmt.Errorf("pgxv5: Options.Isolation is %q; use read committed, repeatable read or serializable", out.Isolation)
}

// Driver is a store.Driver over a PostgreSQL database. Safe for concurrent use.
type Driver struct {
	*core

	pool    *pgxpool.Pool
	options Options
	// begin begins a handler's transaction.
	begin string

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

type core = pg.Core

var _ store.Driver[pgx.Tx] = (*Driver)(nil)

// New returns a driver on pool, which stays the caller's, with its limits: every
// transaction takes a connection for as long as it lasts, and callers that wait
// for one wait in pgxpool.
//
// Statements run in the pool's DefaultQueryExecMode. Behind pgbouncer in
// transaction mode set it to pgx.QueryExecModeExec or
// pgx.QueryExecModeSimpleProtocol, unless max_prepared_statements is set there.
//
// New refuses a server older than PostgreSQL 14 or in recovery, a database that
// is not encoded in UTF8, and sessions with synchronous_commit=off, which lose
// what they have acknowledged. The schema is not looked at; that is for package
// store/migrate. store/postgres uses the same one, and programs with either driver
// may share a database.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Driver, error) {
	if pool == nil {
		return nil, errors.New("pgxv5: New needs a *pgxpool.Pool; open one with pgxpool.New")
	}
	options, err := o.check()
	if err != nil {
		return nil, err
	}
	d := &Driver{pool: pool, options: options, begin: "begin"}
	if options.Isolation != "" {
		d.begin += " isolation level " + string(options.Isolation)
	}
	if _, _, err := hollow(ctx, pool.Config().ConnConfig); err != nil {
		return nil, err // rather than in a handler
	}
	d.core = pg.New(d, pg.Options{DeliveredRetention: options.DeliveredRetention, DurableReplay: options.DurableReplay, Voids: true})
	if err := d.Read(ctx, func(conn pg.Conn) error { return pg.CheckServer(ctx, conn) }); err != nil {
		return nil, err
	}
	return d, nil
}

// Close waits for the requests that are being served and refuses all others with
// store.ErrUnavailable. The pool stays open.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.users.Wait()
	return nil
}

// use keeps the driver open until done is called.
func (d *Driver) use() (done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%w: the driver is closed", store.ErrUnavailable)
	}
	d.users.Add(1)
	return d.users.Done, nil
}

// Dialect implements migrate.Database. It works on a nil Driver.
func (d *Driver) Dialect() string { return pg.Dialect }

// Migrations implements migrate.Database. It works on a nil Driver.
func (d *Driver) Migrations() fs.FS { return pg.Migrations() }
