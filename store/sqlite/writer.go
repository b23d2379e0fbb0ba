// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/wake"
)

const (
	// maxBatchTime bounds the work of one batch while others wait, and so how long
	// the first of it waits for its COMMIT: a share of the 10 ms that a request may
	// take.
	maxBatchTime = 4 * time.Millisecond
	// pollBusy is how often the lock is tried while another process has it.
	pollBusy = 500 * time.Microsecond
	// maxSpoilt is how often a member runs again because others of its batch made
	// SQLite end the transaction, before it gets a batch of its own.
	maxSpoilt = 2
)

// writer runs every write of this process through one connection, and lets
// those that wait at the same moment share one COMMIT.
//
// It has no goroutine of its own. Whoever holds the turn uses the connection: a
// request begins a batch if there is none, does its work in a savepoint on its
// own goroutine, where its panics and its context belong, and passes the turn on
// to the next one that waits. The one with nobody behind it commits for all.
type writer struct {
	db        *sql.DB
	options   Options
	batchTime time.Duration
	wakes     *wake.List
	turn      turn
	log       log
	// lent is the session whose handler is at work now, for Enqueue to find.
	lent atomic.Pointer[session]

	// The rest belongs to the holder of the turn.
	conn   *connection
	batch  *batch
	closed bool
}

// batch is the shared transaction. Its fields are the turn holder's until done
// is closed, and fixed from then on.
type batch struct {
	started  time.Time
	members  int
	messages bool      // wake the relays
	proof    *evidence // a row by which a commit can be recognised
	broken   bool      // SQLite ended the transaction by itself
	done     chan struct{}

	// err is what became of the batch. again means that nothing was kept and the
	// members run once more, alone means each in a batch of its own.
	err          error
	again, alone bool
}

func newWriter(db *sql.DB, options Options, wakes *wake.List) *writer {
	w := &writer{db: db, options: options, batchTime: maxBatchTime, wakes: wakes}
	w.log.w = w
	return w
}

// open takes and verifies the connection. It is called before the first do.
func (w *writer) open(ctx context.Context) error {
	conn, err := connect(ctx, w.db, w.options)
	if err != nil {
		return err
	}
	w.conn = conn
	return nil
}

// close waits for the turn and never gives the connection back.
func (w *writer) close() error {
	w.log.close()
	if err := w.turn.acquire(context.Background()); err != nil {
		return err
	}
	defer w.turn.release()
	if w.closed {
		return nil
	}
	w.commit()
	w.closed = true
	if w.conn == nil {
		return nil
	}
	err := w.conn.close()
	w.conn = nil
	return err
}

type sessionKey struct{}

// do runs work within a batch and returns once the batch is committed. work may
// run several times: when its batch ended through no fault of its own.
func (w *writer) do(ctx context.Context, work func(*session) error) error {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok && s.writer == w && s.active.Load() {
		return fmt.Errorf("%w: it called the store from inside itself and would wait for itself; use its transaction",
			store.ErrTxMisuse)
	}
	deadline := time.Now().Add(w.options.BusyTimeout)
	alone := false
	for spoilt := 1; ; spoilt++ {
		b, err := w.join(ctx, deadline, alone, work)
		if b == nil {
			return err
		}
		<-b.done // COMMIT is on its way; nobody may leave before its answer
		switch {
		case b.again:
			alone = alone || b.alone || spoilt > maxSpoilt
		case err == nil:
			return b.err
		case b.err == nil:
			return err
		default:
			// It was rolled back by itself, but what made it fail may be something
			// that it saw of the others and that is not there now.
			return fmt.Errorf("%w: %w", store.ErrUnavailable, b.err)
		}
	}
}

// join does the work as one member of a batch, and commits it if nobody waits.
// Without a batch, the error is final. With one, it is if the batch is kept: it
// may come from what the work saw of those before it.
func (w *writer) join(ctx context.Context, deadline time.Time, alone bool, work func(*session) error) (*batch, error) {
	if err := w.turn.acquire(ctx); err != nil {
		return nil, err
	}
	if alone {
		w.commit()
	}
	defer w.leave(alone) // also when work panics or ends the goroutine
	if err := w.begin(ctx, deadline); err != nil {
		return nil, err
	}
	b := w.batch
	s := &session{writer: w, conn: w.conn, batch: b}
	s.active.Store(true)
	defer s.active.Store(false)
	if err := work(s); err != nil {
		b.broken = b.broken || !w.conn.inTransaction()
		if b.broken || b.members == 0 {
			return nil, err
		}
		return b, err
	}
	b.members++
	return b, nil
}

// leave ends one turn: the batch goes on if it may and somebody waits, and is
// committed otherwise.
func (w *writer) leave(alone bool) {
	b := w.batch
	full := b == nil || alone || b.broken || b.members >= w.options.MaxBatch || time.Since(b.started) >= w.batchTime
	if !full && w.turn.pass() {
		return
	}
	w.commit()
	w.turn.release()
}

// begin opens a batch if none is open. It waits for another process's lock
// until the deadline.
func (w *writer) begin(ctx context.Context, deadline time.Time) error {
	if w.batch != nil {
		return nil
	}
	if w.closed {
		return fmt.Errorf("%w: the driver is closed", store.ErrUnavailable)
	}
	if w.conn == nil {
		if err := w.open(ctx); err != nil {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
	if err := w.conn.beginImmediate(ctx, deadline); err != nil {
		w.rollback() // an error does not prove that nothing was begun
		return err
	}
	w.batch = &batch{started: time.Now(), done: make(chan struct{})}
	return nil
}

// commit ends the open batch, if there is one, and lets its members know.
func (w *writer) commit() {
	if b := w.batch; b != nil {
		w.batch = nil
		if w.end(b) {
			w.log.committed(b.members)
		}
	}
}

// end sends COMMIT for b, answers its members and says whether it was kept.
func (w *writer) end(b *batch) (kept bool) {
	defer close(b.done)
	if b.broken {
		b.again = true
		w.rollback()
		return false
	}
	failpoint.Hit("sqlite/before-commit")
	err := w.conn.exec("COMMIT")
	failpoint.Hit("sqlite/after-commit")
	if err != nil {
		w.settle(b, err)
	}
	kept = !b.again && b.err == nil
	if b.messages && kept {
		w.wakes.Announce()
	}
	return kept
}

// rollback ends what is left of a transaction and reports whether it was still
// open. A connection that can't even do that is thrown away.
func (w *writer) rollback() (open bool) {
	open, err := w.conn.rollback()
	if err != nil {
		_ = w.conn.close()
		w.conn = nil
	}
	return open
}

// settle decides what a failed COMMIT means for the members.
func (w *writer) settle(b *batch, err error) {
	kept, certain := w.established(b, err, w.rollback())
	switch {
	case kept:
		return
	case !certain:
		b.err = fmt.Errorf("%w: %w", store.ErrCommitUnknown, err)
	case code(err) == codeConstraint && b.members > 1:
		// One of them left a deferred constraint violated; each alone tells which.
		b.again, b.alone = true, true
	case code(err) == codeConstraint:
		b.err = err
	default:
		b.err = classify(err)
		if !errors.Is(b.err, store.ErrConflict) {
			b.err = fmt.Errorf("%w: COMMIT failed: %w", store.ErrUnavailable, err)
		}
	}
}

// established finds out whether a batch whose COMMIT failed was kept.
//
// SQLite's own errors at COMMIT mean that it was not, with one exception: when
// only the sync of the log failed, the commit may be readable in the file, unseen
// by living processes, and come back after a crash. A further commit writes over
// it. An error that is not SQLite's proves nothing by itself.
func (w *writer) established(b *batch, err error, open bool) (kept, certain bool) {
	extended := extendedCode(err)
	proven := extended != 0 && extended != extendedFsync && extended != extendedDirFsync && extended != codeIOErr
	if b.proof == nil && !open && extended == 0 {
		return false, false
	}
	if w.conn == nil && w.open(context.Background()) != nil {
		return false, proven && open
	}
	if b.proof != nil {
		found, err := w.conn.has(b.proof)
		if err != nil {
			return false, proven && open
		}
		if found {
			return true, true
		}
	}
	return false, proven || w.conn.overwrite() == nil
}
