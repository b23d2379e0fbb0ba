// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
)

// Ahead is a text of statements, each with its semicolon, that begins a
// transaction and goes to the database in front of the handler's first
// statement, in one message with it.
type Ahead struct {
	Text string
	// Answered is called when the database has answered that message, with the
	// error if there was one. Which of the statements failed is not known.
	Answered func(err error)
}

// Ride lends a transaction whose begin rides with the handler's first statement,
// where Begin sends it by itself. A handler without a statement leaves it to the
// owner, see Rode. The raw connection must be a driver.ExecerContext that allows
// several statements in one text.
func (c *Conn) Ride(ctx context.Context, a Ahead) (*Tx, error) { return c.lend(ctx, &a) }

// Rode reports whether the begin has been sent.
func (t *Tx) Rode() bool {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	return t.ahead == nil
}

// behind is query with what goes ahead of it. The caller holds conn.mu, as of
// all below.
func (t *Tx) behind(query string) string {
	if t.ahead == nil {
		return query
	}
	return t.ahead.Text + query
}

// sent notes the answer to what behind returned. A driver that skips has sent
// nothing.
func (t *Tx) sent(err error) {
	if t.ahead == nil || errors.Is(err, driver.ErrSkip) {
		return
	}
	a := t.ahead
	t.ahead = nil
	a.Answered(err)
}

// sendAhead sends the begin by itself, in front of what can't travel with it.
func (t *Tx) sendAhead(ctx context.Context) error {
	if t.ahead == nil {
		return nil
	}
	e, ok := t.conn.raw.(driver.ExecerContext)
	if !ok {
		return errNoText
	}
	_, err := e.ExecContext(ctx, t.ahead.Text, nil)
	t.sent(err)
	return err
}

// take is cache.take for a statement with nothing ahead of it.
func (t *Tx) take(ctx context.Context, query string, n int) *cached {
	if t.ahead != nil {
		return nil
	}
	return t.conn.cache.take(ctx, t.conn.raw, query, n)
}
