// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/store"
)

// Tx is one transaction lent to a handler. Its owner ends it with Commit or
// Rollback; the handler cannot.
type Tx struct {
	conn *Conn
	sql  *sql.Tx
	ctx  context.Context // bounds every statement

	// The rest is guarded by conn.mu.
	ahead  *Ahead // not sent yet
	first  error  // the first error of a handler's statement
	misuse error  // an attempt to end the transaction
	sealed bool   // the handler has returned
	ended  bool   // the database's part is over
	open   map[*rows]struct{}
	stmts  map[*stmt]struct{}
}

type txKey struct{}

// Begin starts a transaction. When ctx ends, the statement that runs is
// interrupted as far as the raw driver can, and every further one is refused,
// whichever context a handler gave it. The transaction itself does not end: a
// cancelled context would make database/sql roll back behind its owner's back.
func (c *Conn) Begin(ctx context.Context) (*Tx, error) {
	if err := c.rules.Begin(context.WithoutCancel(ctx), c); err != nil {
		return nil, err
	}
	return c.lend(ctx, nil)
}

func (c *Conn) lend(ctx context.Context, a *Ahead) (*Tx, error) {
	t := &Tx{conn: c, ctx: ctx, ahead: a}
	tx, err := c.shadow.db.BeginTx(context.WithValue(context.WithoutCancel(ctx), txKey{}, t), nil)
	if err != nil {
		return nil, errors.Join(err, c.rules.Rollback(context.WithoutCancel(ctx), c))
	}
	t.sql = tx
	return t, nil
}

// SQL is what the handler receives.
func (t *Tx) SQL() *sql.Tx { return t.sql }

// Err returns why the transaction must not be committed: what the database said
// first, or that the handler tried to end it; nil if neither.
func (t *Tx) Err() error {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	return t.err()
}

// FirstError returns the first error that a statement of the handler had, nil if none.
func (t *Tx) FirstError() error {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	return t.first
}

func (t *Tx) err() error {
	switch {
	case t.misuse != nil:
		return t.misuse
	case t.first != nil:
		return fmt.Errorf("%w: a statement had failed: %w", store.ErrTxMisuse, t.first)
	}
	return nil
}

// Seal ends the handler's part: from here on its statements are refused, those
// of goroutines it left behind too. It returns Err.
func (t *Tx) Seal() error {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	t.sealed = true
	t.closeRows()
	return t.err()
}

// Commit ends the transaction by Rules.Commit. If that fails, the transaction
// is still the owner's to roll back.
func (t *Tx) Commit(ctx context.Context) error {
	if err := t.Seal(); err != nil {
		return err
	}
	if err := t.conn.rules.Commit(context.WithoutCancel(ctx), t.conn); err != nil {
		return err
	}
	t.release()
	return nil
}

// Rollback ends the transaction by Rules.Rollback. A second call does nothing.
func (t *Tx) Rollback(ctx context.Context) error {
	t.conn.mu.Lock()
	t.sealed = true
	t.closeRows()
	ended := t.ended
	t.conn.mu.Unlock()
	if ended {
		return nil
	}
	err := t.conn.rules.Rollback(context.WithoutCancel(ctx), t.conn)
	t.release()
	return err
}

// release lets database/sql forget the *sql.Tx. It waits for rows that the
// handler did not close, and for memory it scanned as sql.RawBytes for as long
// as it likes; so with rows left open the owner doesn't wait for it.
func (t *Tx) release() {
	t.conn.mu.Lock()
	t.ended = true
	for s := range t.stmts {
		_ = s.closeRaw()
	}
	leaked := len(t.open) > 0
	t.conn.mu.Unlock()
	if leaked {
		go func() { _ = t.sql.Rollback() }()
		return
	}
	_ = t.sql.Rollback()
}

// closeRows closes what the handler left open on the raw connection, so that
// no reader is in the way of the boundary. The caller holds conn.mu.
func (t *Tx) closeRows() {
	for r := range t.open {
		_ = r.closeRaw()
	}
}

// enter lets one statement of the handler pass. On success the caller holds
// conn.mu and must call leave.
func (t *Tx) enter(ctx context.Context, query string) error {
	t.conn.mu.Lock()
	err := t.admit(ctx, query)
	if err != nil {
		t.conn.mu.Unlock()
	}
	return err
}

func (t *Tx) admit(ctx context.Context, query string) error {
	switch {
	case t.sealed || t.ended:
		return fmt.Errorf("%w: its handler has returned", store.ErrTxMisuse)
	case t.err() != nil:
		return t.err()
	}
	if err := cmp.Or(ctx.Err(), t.ctx.Err()); err != nil {
		return t.fail(err)
	}
	if query == "" || t.conn.cache.known(query) {
		return nil
	}
	if err := t.conn.rules.Refuse(query); err != nil {
		t.misuse = fmt.Errorf("%w: %w", store.ErrTxMisuse, err)
		return t.misuse
	}
	t.conn.cache.remember(query, t.conn.rules.Reusable != nil && t.conn.rules.Reusable(query))
	return nil
}

// leave records the outcome of a statement and lets the next one pass.
func (t *Tx) leave(err error) error {
	err = t.fail(err)
	t.conn.mu.Unlock()
	return err
}

// fail remembers the first error, which poisons the transaction. The signals
// between database/sql and a driver are not errors of a statement; ErrBadConn
// is one, but database/sql must not take it as a reason to reconnect.
func (t *Tx) fail(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrSkip), errors.Is(err, driver.ErrRemoveArgument):
		return err
	case errors.Is(err, driver.ErrBadConn):
		err = errors.New("sqltx: the connection is gone: " + err.Error())
	}
	if t.first == nil {
		t.first = err
	}
	return err
}

// refuseEnd answers a handler that calls Commit or Rollback. A Rollback that was
// deferred looks like any other: for database/sql the *sql.Tx is over after it,
// so a handler that then returns nil can't be told from one that gave up.
func (t *Tx) refuseEnd(call string) error {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	if t.ended {
		return nil // this is release
	}
	if t.misuse == nil {
		t.misuse = fmt.Errorf("%w: its handler called %s; don't call it and don't \"defer tx.Rollback()\": return an error to roll back, nil to commit", store.ErrTxMisuse, call)
	}
	return t.misuse
}
