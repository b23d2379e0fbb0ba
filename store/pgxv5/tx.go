// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// tx is the transaction that a handler receives. It is held back until the
// handler's first statement, refuses to be ended, poisons itself with the first
// error, and is dead once the handler has returned (rule L10).
//
// Like every pgx.Tx it is for one goroutine at a time. Another one gets an error,
// also one that the handler left behind.
type tx struct {
	d     *Driver
	ctx   context.Context // bounds every statement
	front *front

	mu   sync.Mutex
	idle sync.Cond // busy has become false
	busy bool      // a statement runs, or a callback of its rows

	// The rest is guarded by mu; what a statement does to it, by busy.

	// claim is how the intent was claimed, Claimed from the start where there is
	// none.
	claim  pg.Verdict
	began  time.Time // of the transaction, by the server's clock; zero is not known
	first  error     // the first error of a handler's statement
	depth  int       // how many savepoints there were then
	misuse error     // an attempt to end the transaction
	sealed bool      // the handler has returned

	open     func() error // closes what is open on the connection
	depths   int          // savepoints
	names    int          // of savepoints given out
	large    pgx.Tx
	shown    *pgx.Conn         // what Conn returns, once it was asked for
	messages []reprise.Message // enqueued, not written yet
}

func newTx(ctx context.Context, d *Driver, conn *pgx.Conn, statements ...held) *tx {
	t := &tx{d: d, ctx: ctx, front: &front{conn: conn, held: statements}, claim: pg.Claimed}
	t.idle.L = &t.mu
	return t
}

var _ pgx.Tx = (*tx)(nil)

// errNotOurs is the error of the first statement of a handler whose intent is
// another attempt's. What the handler makes of it counts for nothing.
var errNotOurs = errors.New("pgxv5: this intent has a record, or is another attempt's at this moment; return this error")

// err is why the transaction must not be committed. The caller holds mu.
func (t *tx) err() error {
	switch {
	case t.misuse != nil:
		return t.misuse
	case errors.Is(t.first, errNotOurs):
		return t.first
	case t.first != nil:
		return fmt.Errorf("%w: a statement had failed: %w", store.ErrTxMisuse, t.first)
	}
	return nil
}

// enter lets one statement of the handler pass, under a context that ends with
// the transaction's too. On success the caller must call leave.
func (t *tx) enter(ctx context.Context) (context.Context, func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx); err != nil {
		return nil, nil, err
	}
	t.busy = true
	if ctx == t.ctx { // which is the usual case
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(t.ctx.Err()) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

func (t *tx) admit(ctx context.Context) error {
	switch {
	case t.sealed:
		return fmt.Errorf("%w: its handler has returned", store.ErrTxMisuse)
	case t.err() != nil:
		return t.err()
	case t.busy:
		return t.fail(errors.New("pgxv5: the transaction is in use; finish with its rows, and use it from one goroutine at a time"))
	}
	if err := ctx.Err(); err != nil {
		return t.fail(err)
	}
	if err := t.ctx.Err(); err != nil {
		return t.fail(err)
	}
	return nil
}

// leave records the outcome of a statement and lets the next one pass.
func (t *tx) leave(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	t.idle.Broadcast()
	return t.fail(err)
}

// fail remembers the first error, which poisons the transaction.
func (t *tx) fail(err error) error {
	if err != nil && t.first == nil {
		t.first, t.depth = err, t.depths
	}
	return err
}

// refuse says why a handler must not run a statement.
func (t *tx) refuse(sql string) error {
	err := pg.Refuse(sql)
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.misuse == nil {
		t.misuse = fmt.Errorf("%w: %w", store.ErrTxMisuse, err)
	}
	return t.misuse
}

// seal ends the handler's part: from here on its statements are refused, those of
// goroutines it left behind too; one that runs is waited for.
func (t *tx) seal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = true
	for t.busy {
		t.idle.Wait()
	}
	if t.open != nil {
		_ = t.fail(t.open())
		t.open = nil
	}
	if t.large != nil {
		_ = t.fail(t.large.Commit(context.WithoutCancel(t.ctx)))
	}
}

// Commit refuses.
func (t *tx) Commit(context.Context) error { return t.refuseEnd("Commit") }

// Rollback refuses, also when it is deferred: a handler that then returns nil
// can't be told from one that gave up.
func (t *tx) Rollback(context.Context) error { return t.refuseEnd("Rollback") }

func (t *tx) refuseEnd(call string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return pgx.ErrTxClosed
	}
	if t.misuse == nil {
		t.misuse = fmt.Errorf("%w: its handler called %s; don't call it and don't \"defer tx.Rollback(ctx)\": return an error to roll back, nil to commit",
			store.ErrTxMisuse, call)
	}
	return t.misuse
}

// Conn returns a connection that is closed: its Config and its TypeMap can be
// read, and whatever would reach the database fails. The transaction's own
// connection can end it, and outlives it.
func (t *tx) Conn() *pgx.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown == nil {
		t.shown, _, _ = hollow(context.WithoutCancel(t.ctx), t.d.pool.Config().ConnConfig) // New has tried it
	}
	return t.shown
}

// LargeObjects costs two round trips: pgx makes them for a transaction of its own
// only, and it must end with this one.
func (t *tx) LargeObjects() pgx.LargeObjects {
	_, end, err := t.enter(t.ctx)
	if err == nil {
		defer end()
		if err = t.front.flush(t.ctx); err == nil && t.large == nil {
			// Neither of these begins or ends anything.
			t.large, err = t.front.conn.BeginTx(t.ctx, pgx.TxOptions{BeginQuery: "select 1", CommitQuery: "select 1"})
		}
		err = t.leave(err)
	}
	if err != nil {
		_, dead, _ := hollow(context.WithoutCancel(t.ctx), t.d.pool.Config().ConnConfig)
		return dead
	}
	return t.large.LargeObjects()
}
