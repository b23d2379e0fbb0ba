// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/internal/sqltx"
)

// session is one member's turn in a batch.
type session struct {
	writer *writer
	conn   *connection
	batch  *batch
	active atomic.Bool // as long as its turn lasts

	tx       *sqltx.Tx // lent to the handler; nil for the driver's own work
	mu       sync.Mutex
	flushed  bool
	messages []reprise.Message // enqueued, not written yet
}

// atomic runs statements of the driver's own, all or none.
func (s *session) atomic(work func() error) error {
	if err := s.conn.savepoint(); err != nil {
		return s.lost(err)
	}
	if err := work(); err != nil {
		return s.undo(err, s.conn.rollbackSavepoint())
	}
	if err := s.conn.releaseSavepoint(); err != nil {
		return s.undo(err, s.conn.rollbackSavepoint())
	}
	return nil
}

// lend runs a handler's work and then finish, the driver's own last writes, in a
// savepoint, with the messages enqueued by work written last (rule O1).
func (s *session) lend(ctx context.Context, work func(context.Context, *sql.Tx) error, finish func() error) (err error) {
	ctx = context.WithValue(ctx, sessionKey{}, s)
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return s.lost(err)
	}
	s.tx = tx
	s.writer.lent.Store(s)
	committed := false
	defer func() {
		s.writer.lent.Store(nil)
		if !committed { // work may also have panicked, or ended its goroutine
			err = s.undo(err, tx.Rollback(ctx))
		}
	}()
	if err := work(ctx, tx.SQL()); err != nil {
		return blame(err, tx)
	}
	failpoint.Hit("sqlite/after-work")
	if err := ctx.Err(); err != nil {
		return err // a statement that this kept from running left no error behind
	}
	if err := tx.Seal(); err != nil {
		return blame(err, tx)
	}
	if finish != nil {
		if err := finish(); err != nil {
			return classify(err)
		}
	}
	failpoint.Hit("sqlite/before-messages")
	if err := s.flush(); err != nil {
		return classify(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return classify(err)
	}
	committed = true
	return nil
}

// blame returns work's own error, with the sentinel beside it if it was the
// database that failed under work.
func blame(err error, tx *sqltx.Tx) error {
	first := tx.FirstError()
	if first == nil || code(first) == 0 {
		return err
	}
	if sentinel := classify(first); !errors.Is(first, sentinel) {
		return &databaseError{work: err, database: sentinel}
	}
	return err
}

// databaseError reads as work's error and matches the database's too.
type databaseError struct{ work, database error }

func (e *databaseError) Error() string   { return e.work.Error() }
func (e *databaseError) Unwrap() []error { return []error{e.work, e.database} }

// undo ends a failed member. If its savepoint is gone, SQLite has rolled back
// the whole transaction, and everybody else in it must run again.
func (s *session) undo(err, rollback error) error {
	if rollback != nil {
		s.batch.broken = true
	}
	return err
}

// lost is undo for one whose savepoint could not even be made.
func (s *session) lost(err error) error {
	s.batch.broken = true
	return classify(err)
}
