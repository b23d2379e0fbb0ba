// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/wake"
)

// Options of a Driver. The zero value is sound.
type Options struct {
	// DeliveredRetention is how long messages stay in reprise_outbox after their
	// delivery, for people to look at. Defaults to 0: they go with the delivery.
	DeliveredRetention time.Duration
}

// Driver is a store.Driver over a MariaDB or MySQL database. Safe for concurrent
// use.
type Driver struct {
	db      *sql.DB
	options Options
	server  server
	shadow  *sqltx.Shadow
	wakes   wake.List
	lent    sync.Map // *sql.Tx to *session, as long as it is lent

	closing sync.Mutex
	closed  atomic.Bool
	running sync.WaitGroup // requests that are being served
}

var _ store.Driver[*sql.Tx] = (*Driver)(nil)

// New looks at the server behind db and refuses what the protocol can't be kept
// with: versions before MariaDB 10.6 and MySQL 8.0, sessions that don't
// autocommit or read what is not committed, a statement-based binary log, and a DSN
// without a database.
//
// The driver uses the connections of db like any other user of it, one for each
// transaction, and changes no setting of them. Its statements travel together,
// which saves most of their cost, if the DSN of go-sql-driver/mysql says
// multiStatements=true and interpolateParams=true; see the package's
// documentation. Without them they go one by one.
//
// The schema is not looked at; that is for package store/migrate.
func New(ctx context.Context, db *sql.DB, o *Options) (*Driver, error) {
	if db == nil {
		return nil, errors.New("mysql: New needs a *sql.DB; open one with sql.Open")
	}
	d := &Driver{db: db}
	if o != nil {
		d.options = *o
	}
	if d.options.DeliveredRetention < 0 {
		return nil, fmt.Errorf("mysql: Options.DeliveredRetention is %v; use 0 to keep nothing", d.options.DeliveredRetention)
	}
	var err error
	if d.server, err = inspect(ctx, db); err != nil {
		return nil, err
	}
	d.shadow = sqltx.NewShadow()
	return d, nil
}

// Close waits for the requests that are being served and refuses all others
// with store.ErrUnavailable. The *sql.DB stays open.
func (d *Driver) Close() error {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed.Swap(true) {
		return nil
	}
	d.running.Wait()
	return d.shadow.Close()
}

// enter counts a request; leave must be called if there is no error.
func (d *Driver) enter() (leave func(), err error) {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed.Load() {
		return nil, fmt.Errorf("%w: the driver is closed", store.ErrUnavailable)
	}
	d.running.Add(1)
	return d.running.Done, nil
}

// Transact implements store.Driver.
func (d *Driver) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	return d.session(ctx, func(s *session) error {
		return s.lend(ctx, d.server.begin(), work, nil)
	})
}
