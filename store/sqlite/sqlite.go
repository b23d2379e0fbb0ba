// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/wake"
)

// Options of a Driver. The zero value is sound.
type Options struct {
	// BusyTimeout is how long a request waits for the write lock while another
	// process has it, before it fails with store.ErrConflict. Defaults to 5 s.
	BusyTimeout time.Duration
	// MaxBatch is how many requests share one COMMIT at most; 1 turns group commit
	// off. Defaults to 128.
	MaxBatch int
	// LogSize is how long the write-ahead log may become, in bytes, before the
	// driver writes it back into the database and has it begin anew. It becomes
	// longer while a reader holds it; see Stats. Defaults to 4 MiB.
	LogSize int64
	// DeliveredRetention is how long messages stay in reprise_outbox after their
	// delivery, for people to look at. Defaults to 0: they go with the delivery.
	DeliveredRetention time.Duration
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	switch {
	case out.BusyTimeout < 0:
		return out, fmt.Errorf("sqlite: Options.BusyTimeout is %v; use 0 for the default", out.BusyTimeout)
	case out.MaxBatch < 0:
		return out, fmt.Errorf("sqlite: Options.MaxBatch is %d; use 0 for the default", out.MaxBatch)
	case out.LogSize < 0:
		return out, fmt.Errorf("sqlite: Options.LogSize is %d; use 0 for the default", out.LogSize)
	case out.DeliveredRetention < 0:
		return out, fmt.Errorf("sqlite: Options.DeliveredRetention is %v; use 0 to keep nothing", out.DeliveredRetention)
	}
	if out.BusyTimeout == 0 {
		out.BusyTimeout = 5 * time.Second
	}
	if out.MaxBatch == 0 {
		out.MaxBatch = 128
	}
	if out.LogSize == 0 {
		out.LogSize = 4 << 20
	}
	return out, nil
}

// Driver is a store.Driver over a SQLite file. Safe for concurrent use.
type Driver struct {
	db      *sql.DB
	options Options
	writer  *writer
	wakes   wake.List
}

var _ store.Driver[*sql.Tx] = (*Driver)(nil)

// New takes one connection of db for itself, to write through, and verifies
// that what is committed there survives a loss of power. It refuses a database
// in memory, a file that can't be written, one that is locked for longer than
// BusyTimeout and one that is damaged. The rest of db, at least one connection,
// stays the caller's and serves the driver's reads.
//
// The schema is not looked at; that is for package store/migrate.
func New(ctx context.Context, db *sql.DB, o *Options) (*Driver, error) {
	if db == nil {
		return nil, errors.New("sqlite: New needs a *sql.DB; open one with sql.Open")
	}
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if limit := db.Stats().MaxOpenConnections; limit == 1 {
		return nil, errors.New("sqlite: the *sql.DB is limited to one connection, and the driver keeps one to itself; " +
			"allow at least two with SetMaxOpenConns")
	}
	d := &Driver{db: db, options: options}
	d.writer = newWriter(db, options, &d.wakes)
	if err := d.writer.open(ctx); err != nil {
		return nil, err
	}
	if err := d.checkPool(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// checkPool refuses connections beside the driver's that would lose what the
// driver has committed: one with synchronous=OFF that writes the log back lets it
// be overwritten before the database is on the disk.
func (d *Driver) checkPool(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.options.BusyTimeout+5*time.Second) // the rest for a connection of the pool
	defer cancel()
	level := -1
	err := untilFree(ctx, time.Now().Add(d.options.BusyTimeout), func() error {
		return d.db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level)
	})
	switch {
	case err != nil:
		return explain(err)
	case level == 0:
		return errors.New("sqlite: the connections of the *sql.DB have PRAGMA synchronous = OFF, and may lose what the driver has committed; " +
			"open it with NORMAL or FULL")
	}
	return nil
}

// Close waits for the requests that are being served, refuses all others with
// store.ErrUnavailable, and gives up the driver's connection. The *sql.DB stays
// open.
func (d *Driver) Close() error { return d.writer.close() }

// Transact implements store.Driver.
func (d *Driver) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	return d.writer.do(ctx, func(s *session) error {
		return s.lend(ctx, work, nil)
	})
}
