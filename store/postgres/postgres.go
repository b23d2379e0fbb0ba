// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// Options of a Driver. The zero value is sound.
type Options struct {
	// Isolation of handlers' transactions. Defaults to the database's own default,
	// which is READ COMMITTED unless it was changed. At every level a transaction
	// that loses a conflict ends in store.ErrConflict and is run again.
	Isolation sql.IsolationLevel
	// DeliveredRetention is how long messages stay in reprise_outbox after their
	// delivery, counted from their enqueueing, for people to look at. Defaults to 0:
	// they go with the delivery.
	DeliveredRetention time.Duration
	// DurableReplay makes an answer from a record wait until that record is as
	// durable as a new commit would be, at the price of a commit for each such
	// answer. It is for synchronous standbys: a commit whose wait for the standby was
	// cancelled can be read, and is lost with the server. A commit whose wait an
	// operator cancels by pg_cancel_backend is beyond it: the server confirms that one
	// with a warning. Defaults to false.
	DurableReplay bool
	// AcceptReruns lets New take a *sql.DB whose driver is known to run statements
	// again by itself when their answer is lost. The driver's own work is safe from
	// that; statements that the program runs outside of handlers, without a
	// transaction of its own, are not. Defaults to false: New refuses.
	AcceptReruns bool
}

func (o *Options) check() (Options, string, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.DeliveredRetention < 0 {
		return out, "", fmt.Errorf("postgres: Options.DeliveredRetention is %v; use 0 to keep nothing", out.DeliveredRetention)
	}
	begin, ok := map[sql.IsolationLevel]string{
		sql.LevelDefault:        "BEGIN",
		sql.LevelReadCommitted:  "BEGIN ISOLATION LEVEL READ COMMITTED",
		sql.LevelRepeatableRead: "BEGIN ISOLATION LEVEL REPEATABLE READ",
		sql.LevelSnapshot:       "BEGIN ISOLATION LEVEL REPEATABLE READ",
		sql.LevelSerializable:   "BEGIN ISOLATION LEVEL SERIALIZABLE",
	}[out.Isolation]
	if !ok {
		return out, "", fmt.Errorf("postgres: Options.Isolation is %v, which PostgreSQL does not have", out.Isolation)
	}
	return out, begin, nil
}

// Driver is a store.Driver over a PostgreSQL database. Safe for concurrent use.
type Driver struct {
	*core

	db      *sql.DB
	options Options
	begin   string
	shadow  *sqltx.Shadow
	lent    sync.Map // *sql.Tx of a handler at work -> *session

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

type core = pg.Core

var _ store.Driver[*sql.Tx] = (*Driver)(nil)

// New returns a driver on db, which stays the caller's, with its limits: every
// transaction takes a connection for as long as it lasts, and callers that wait
// for one wait in database/sql.
//
// It refuses a server older than PostgreSQL 14 or in recovery, a database that is
// not encoded in UTF8, sessions with synchronous_commit=off, which lose what they
// have acknowledged, a client library that can't send several statements in one
// message, and one that runs statements again by itself (Options.AcceptReruns).
//
// The schema is not looked at; that is for package store/migrate.
func New(ctx context.Context, db *sql.DB, o *Options) (*Driver, error) {
	if db == nil {
		return nil, errors.New("postgres: New needs a *sql.DB; open one with sql.Open")
	}
	options, begin, err := o.check()
	if err != nil {
		return nil, err
	}
	if err := checkDriver(db.Driver()); err != nil && !options.AcceptReruns {
		return nil, err
	}
	d := &Driver{db: db, options: options, begin: begin, shadow: sqltx.NewShadow()}
	d.core = pg.New(pool{d}, pg.Options{DeliveredRetention: options.DeliveredRetention, DurableReplay: options.DurableReplay})
	if err := d.probe(ctx); err != nil {
		return nil, errors.Join(err, d.shadow.Close())
	}
	return d, nil
}

// probe asks the server whether it can be worked with.
func (d *Driver) probe(ctx context.Context) error {
	return d.within(ctx, "SELECT 1; SELECT generate_series(1, 2)", func(l *loan) error {
		if l.rows != 2 {
			return errors.New("postgres: the client library does not say how many rows a statement had; use pgx")
		}
		l.clean = true
		return pg.CheckServer(ctx, l.conn)
	})
}

// Close waits for the requests that are being served and refuses all others with
// store.ErrUnavailable. The *sql.DB stays open.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.users.Wait()
	return d.shadow.Close()
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
