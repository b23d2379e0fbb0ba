// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// session is one handler's transaction.
type session struct {
	*loan
	d  *Driver
	tx *sqltx.Tx

	mu       sync.Mutex
	flushed  bool
	messages []reprise.Message // enqueued, not written yet
}

// lend runs a handler's work and then finish, the driver's own writes, in the
// transaction that is open on l, and commits it, with the messages enqueued by
// work written last (rule O1). before is put in front of them in the last message.
func (d *Driver) lend(ctx context.Context, l *loan, before string, work func(context.Context, *sql.Tx) error,
	finish func(context.Context) error,
) (err error) {
	tx, err := l.guard.Begin(ctx)
	if err != nil {
		return err
	}
	s := &session{loan: l, d: d, tx: tx}
	d.lent.Store(tx.SQL(), s)
	ended := false
	defer func() {
		d.lent.Delete(tx.SQL())
		if !ended { // work may also have panicked, or ended its goroutine
			_ = tx.Rollback(ctx) // seals it, and lets database/sql forget it
			l.clean = l.rollback(ctx) == nil
			err = blame(err, tx, l.clean)
		}
	}()
	if err := work(ctx, tx.SQL()); err != nil {
		return err
	}
	failpoint.Hit("postgres/after-work")
	if err := ctx.Err(); err != nil {
		return err // a statement that this kept from running left no error behind
	}
	if err := tx.Seal(); err != nil {
		return err
	}
	// From here on nothing is the handler's, and its context ends nothing any more.
	ctx = context.WithoutCancel(ctx)
	if finish != nil {
		failpoint.Hit("postgres/before-result")
		if err := finish(ctx); err != nil {
			return err
		}
	}
	text, err := s.flush()
	if err != nil {
		return err
	}
	failpoint.Hit("postgres/before-commit")
	ended = true
	err = l.commit(ctx, before+text+"COMMIT")
	failpoint.Hit("postgres/after-commit")
	_ = tx.Rollback(ctx) // nothing is left to roll back: database/sql forgets it
	if err == nil && len(s.messages) > 0 {
		pg.Announce(d.core)
	}
	return pg.Left(err)
}

// flush returns the statements that write the enqueued messages.
func (s *session) flush() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = true
	if s.prepared {
		return pg.SendText(s.messages)
	}
	return pg.FlushText(s.messages)
}

// enqueue keeps messages for the flush.
func (s *session) enqueue(messages []reprise.Message) error {
	if err := s.tx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushed {
		return fmt.Errorf("%w: messages enqueued after the handler has returned", store.ErrTxMisuse)
	}
	s.messages = append(s.messages, messages...)
	return nil
}

// blame gives the error of a transaction that was rolled back what the database
// had to do with it: err itself may be the handler's, which has seen a conflict
// and says something else.
func blame(err error, tx *sqltx.Tx, alive bool) error {
	if err == nil {
		return nil
	}
	first := tx.FirstError()
	if first == nil {
		return pg.Classify(err)
	}
	cause := pg.Classify(first)
	ended := errors.Is(first, context.Canceled) || errors.Is(first, context.DeadlineExceeded)
	if !alive && !ended && pg.SQLState(first) == "" {
		cause = fmt.Errorf("%w: %w", store.ErrUnavailable, first)
	}
	for _, sentinel := range []error{store.ErrConflict, store.ErrUnavailable} {
		if errors.Is(cause, sentinel) && !errors.Is(err, sentinel) {
			return &databaseError{work: err, database: cause}
		}
	}
	return err
}

// databaseError reads as work's error and matches the database's too.
type databaseError struct{ work, database error }

func (e *databaseError) Error() string   { return e.work.Error() }
func (e *databaseError) Unwrap() []error { return []error{e.work, e.database} }

// Transact implements store.Driver.
func (d *Driver) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	token := store.NewToken()
	return d.within(ctx, d.begin+"; "+pg.TokenText(token), func(l *loan) error {
		return d.lend(ctx, l, pg.CheckText(token)+"; ", work, nil)
	})
}

// Enqueue implements store.Outbox. A *sql.Tx that is not the driver's belongs to
// the same database and writes the messages at once.
func (d *Driver) Enqueue(ctx context.Context, tx *sql.Tx, messages ...reprise.Message) error {
	if s, ok := d.lent.Load(tx); ok {
		return s.(*session).enqueue(messages)
	}
	text, err := pg.FlushText(messages)
	if err != nil || text == "" {
		return err
	}
	_, err = tx.ExecContext(ctx, text)
	return pg.Classify(err)
}

// Accept implements store.Inbox. tx may be the driver's or any other of the same
// database.
func (d *Driver) Accept(ctx context.Context, tx *sql.Tx, r store.Receipt) (fresh bool, stored [32]byte, err error) {
	return pg.Accept(ctx, pooled{tx}, r)
}
