// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// lend runs a handler's work in t and commits it, with the record that finish
// returns, if any, and the messages enqueued by work last (rule O1). An error means
// that the transaction was rolled back, or is errNotOurs.
func (d *Driver) lend(ctx context.Context, t *tx, claim *held, work func(context.Context, pgx.Tx) error, finish func() (*held, error)) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// work panicked, or ended its goroutine.
		t.seal()
		if t.establish(ctx, claim) == nil && t.refused() && recover() != nil {
			err = errNotOurs // as if work had not been called
			return
		}
		_ = rollback(ctx, t.front.conn)
	}()
	err = work(ctx, t)
	returned = true
	failpoint.Hit("pgxv5/after-work")
	t.seal()
	if err == nil {
		err = t.err()
	}
	if err == nil {
		if err = t.commit(ctx, finish); t.decided(err) {
			return err
		}
	}
	// What a claim would have said comes before what work says, or its statements.
	if claimed := t.establish(ctx, claim); claimed != nil {
		_ = rollback(ctx, t.front.conn)
		return claimed
	}
	if t.refused() {
		return errNotOurs
	}
	broken := rollback(ctx, t.front.conn) != nil
	return t.blame(err, broken)
}

// decided says that the error of the last message stands, whatever a claim would
// say.
func (t *tx) decided(err error) bool {
	return err == nil || t.claim != 0 || local(err) || errors.Is(err, store.ErrCommitUnknown) || pg.Taken(err)
}

// refused says that the intent is not this attempt's.
func (t *tx) refused() bool { return t.claim != 0 && t.claim != pg.Claimed }

// establish claims the intent if no statement of the handler has, because a
// record answers whatever the handler came to without it.
func (t *tx) establish(ctx context.Context, claim *held) error {
	conn := t.front.conn
	if t.claim != 0 || claim == nil {
		return nil
	}
	if err := rollback(ctx, conn); err != nil {
		return t.lost(ctx, err)
	}
	t.front.held = []held{begin(t.d.begin), *claim}
	if err := t.front.flush(ctx); err != nil && !t.refused() {
		return t.lost(ctx, err)
	}
	return nil
}

// lost is the error of a claim that could not be made.
func (t *tx) lost(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	if t.first != nil && !errors.Is(t.first, err) && pg.SQLState(t.first) == "" {
		err = t.first
	}
	if local(err) {
		return err
	}
	return reached(ctx, t.front.conn, pg.Classify(err))
}

// commit sends what is still held back, the driver's own writes, the messages and
// COMMIT in one message. No context can end it but commitPatience.
func (t *tx) commit(ctx context.Context, finish func() (*held, error)) (err error) {
	conn := t.front.conn
	statements, err := t.last(finish)
	if err != nil {
		_ = rollback(ctx, conn)
		return pg.Classify(err)
	}
	if len(statements) == 0 {
		return nil
	}
	failpoint.Hit("pgxv5/before-commit")
	t.front.held = statements
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	r, err := t.front.send(patient)
	if err == nil {
		err = r.Close()
	}
	failpoint.Hit("pgxv5/after-commit")
	switch {
	case err == nil:
		if len(t.messages) > 0 {
			pg.Announce(t.d.core)
		}
		return nil
	case t.refused():
		return errNotOurs
	case local(err), !conn.IsClosed() && pg.SQLState(err) == "" && !errors.Is(err, errMisread):
		// It is of this side: nothing was sent, or COMMIT was answered by ROLLBACK.
		_ = rollback(ctx, conn)
		return err
	}
	return pg.CommitError(err, rollback(ctx, conn) == nil)
}

// last returns the statements of the last message. Where nothing has been sent yet
// they are a transaction by themselves, and need no BEGIN and COMMIT around them.
// The record comes first and claims the intent, so what is behind it is skipped if
// the intent has one, or is another attempt's.
func (t *tx) last(finish func() (*held, error)) ([]held, error) {
	begun := !t.unbegun()
	if status := t.front.conn.PgConn().TxStatus(); begun && status != 'T' {
		return nil, fmt.Errorf("%w: the transaction has failed or ended (status %c) without the driver's knowledge", store.ErrTxMisuse, status)
	}
	var record *held
	if finish != nil {
		var err error
		if record, err = finish(); err != nil {
			return nil, err
		}
	}
	statements, alone := t.front.held, t.alone()
	if alone {
		statements = slices.DeleteFunc(statements, func(h held) bool { return h.begins || h.claims })
		if record != nil { // Its times are then those of the beginning.
			statements, record = slices.Insert(statements, 0, *record), nil
		}
	}
	own, err := sending(t.messages, record)
	if err != nil {
		return nil, err
	}
	statements = slices.Concat(statements, own)
	switch {
	case alone:
		return statements, nil
	case len(statements) == 1 && statements[0].begins: // BEGIN alone
		return nil, nil
	}
	return append(statements, held{sql: "commit", read: func(r pgx.BatchResults) error {
		tag, err := r.Exec()
		if err != nil {
			return err
		}
		return committed(tag)
	}}), nil
}

// unbegun says that BEGIN is still held back, and everything with it.
func (t *tx) unbegun() bool { return len(t.front.held) > 0 && t.front.held[0].begins }

// alone says whether the last message is the only one.
func (t *tx) alone() bool { return t.unbegun() && t.d.options.Isolation == "" && t.implicit() }

// implicit says whether what the handler has queued may run without a BEGIN: a
// procedure could then end the transaction.
func (t *tx) implicit() bool {
	for _, h := range t.front.held {
		if !h.begins && !h.claims && !h.rows {
			return false
		}
	}
	return true
}

// stale says that the first message met a connection that was dead before, so that
// nothing has happened.
func (t *tx) stale(ctx context.Context) bool {
	return !t.front.reached && t.front.conn.IsClosed() && ctx.Err() == nil && t.first != nil && !errors.Is(t.first, errNotOurs) &&
		!local(t.first)
}

// local says whether an error of a statement is of this side: an argument that can't
// be sent. pgx gives up the connection for it, which has done nothing.
func local(err error) bool {
	_, before := errors.AsType[pgx.ErrPreprocessingBatch](err)
	return before && pg.SQLState(err) == "" && !errors.Is(pg.Classify(err), store.ErrUnavailable)
}

// blame gives the error of a transaction that was rolled back what the database
// had to do with it: err itself may be the handler's, which has seen a conflict
// and says something else. broken says that the connection is.
func (t *tx) blame(err error, broken bool) error {
	if t.first == nil {
		return pg.Classify(err)
	}
	cause := pg.Classify(t.first)
	ended := errors.Is(t.first, context.Canceled) || errors.Is(t.first, context.DeadlineExceeded)
	if broken && !ended && pg.SQLState(t.first) == "" && !local(t.first) {
		cause = fmt.Errorf("%w: %w", store.ErrUnavailable, t.first)
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
