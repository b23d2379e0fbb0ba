// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// bound returns the context for one statement of a handler: it ends with the
// handler's own or with the transaction's, whichever is first. A handler may well
// say Exec without any context, and its statement must not run for ever all the
// same. end is to be called when the statement is over.
func (t *Tx) bound(ctx context.Context) (_ context.Context, end func()) {
	if done := t.ctx.Done(); done == nil || done == ctx.Done() {
		return ctx, func() {}
	}
	joined, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	return &bounded{joined, t.ctx}, func() {
		stop()
		cancel()
	}
}

// bounded says which of two contexts ended it.
type bounded struct {
	context.Context
	tx context.Context
}

func (b *bounded) Err() error {
	err := b.Context.Err()
	if err != nil && b.tx.Err() != nil {
		return b.tx.Err()
	}
	return err
}

// late says of an error under a context that is over that the time was up: to
// the one who reads it, that is what happened. Drivers differ in what they say.
func late(ctx context.Context, err error) error {
	over := ctx.Err()
	if err == nil || over == nil || errors.Is(err, over) || errors.Is(err, driver.ErrSkip) {
		return err
	}
	if errors.Is(err, driver.ErrBadConn) {
		return fmt.Errorf("%w: the connection is gone: %v", over, err) //nolint:errorlint // database/sql must not see it (Tx.fail)
	}
	return fmt.Errorf("%w: %w", over, err)
}
