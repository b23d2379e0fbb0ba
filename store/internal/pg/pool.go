// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/store/internal/wake"
)

// Conn is one connection, in a transaction or not. It is used by one goroutine
// at a time. Its errors are those of the client library.
//
// Arguments are []byte, string, int64, bool or nil, and every parameter is cast
// in the text of the statement; destinations are *[]byte (nil for NULL), *string,
// *int64, *bool, *time.Time and **time.Time (nil for NULL).
type Conn interface {
	// Exec runs one statement and returns how many rows it changed or selected.
	// Without arguments the text may hold several statements, which go out
	// together by the simple protocol; the count is that of the last one.
	Exec(ctx context.Context, sql string, args ...any) (rows int64, err error)
	// Query runs one statement and calls row for each row.
	Query(ctx context.Context, sql string, row Row, args ...any) error
}

// Row takes one row of a query. It must not keep scan.
type Row func(scan Scan) error

// Scan copies the values of one row.
type Scan func(dest ...any) error

// Pool lends connections to the same server, which must be the primary.
type Pool interface {
	// Read lends a connection outside a transaction, for statements that change
	// nothing. A client library may run such a statement again by itself.
	Read(ctx context.Context, use func(Conn) error) error
	// Write runs use in one transaction that reads what is committed at each of
	// its statements (READ COMMITTED, whatever the default is), and commits it
	// without regard to ctx. An error of use rolls back and is returned as it is;
	// one of COMMIT has been through CommitError.
	Write(ctx context.Context, use func(Conn) error) error
}

// BeginWrite begins the transaction of Pool.Write.
const BeginWrite = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

// Options of a Core. The zero value is sound.
type Options struct {
	// DeliveredRetention is how long messages stay in reprise_outbox after their
	// delivery, counted from their enqueueing.
	DeliveredRetention time.Duration
	// DurableReplay makes every answer from a record wait until that record is as
	// durable as a new commit would be.
	DurableReplay bool
	// Voids makes Resolve write down that there is no record, for a driver that
	// claims an intent and commits it in one message: that may still be on its way.
	Voids bool
}

// Core does all of a driver that is not its hot path. Drivers embed it. Safe for
// concurrent use.
type Core struct {
	pool    Pool
	options Options
	wakes   wake.List
}

// New returns the core of a driver that has this pool.
func New(pool Pool, o Options) *Core { return &Core{pool: pool, options: o} }

func (c *Core) read(ctx context.Context, use func(Conn) error) error {
	return Classify(c.pool.Read(ctx, use))
}

func (c *Core) write(ctx context.Context, use func(Conn) error) error {
	return Classify(c.pool.Write(ctx, use))
}
