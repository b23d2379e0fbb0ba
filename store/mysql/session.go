// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
)

const (
	// commitPatience is how long the answer to a COMMIT is waited for. After that
	// it is unknown, which is what it is.
	commitPatience = 30 * time.Second
	// rollbackPatience is how long that to a ROLLBACK is waited for. After that the
	// connection is closed, which comes to the same.
	rollbackPatience = 5 * time.Second
	// staleConnections is how many connections that died in the pool are skipped.
	staleConnections = 3
)

// session is one transaction on one connection of the pool.
type session struct {
	d    *Driver
	conn *sqltx.Conn
	ctx  context.Context //nolint:containedctx // of the request, for the statements that begin the transaction
	// open says that a transaction may be open on the connection, lost that the
	// connection must not be used again.
	open, lost bool

	first, last  []string // the statements that begin and end a lent transaction
	begun, ended answers  // what they were answered

	tx       *sqltx.Tx
	mu       sync.Mutex
	flushed  bool
	messages []reprise.Message // enqueued, not written yet
}

// answers are what statements said of the rows they changed, one for each
// statement of a text.
type answers struct{ affected, ids []int64 }

// last is what statement n gave to LAST_INSERT_ID.
func (a *answers) last(n int) int64 { return a.ids[n] }

// session runs use with a connection of its own. Nothing that use does may
// outlive it. A transaction that use leaves open is rolled back.
func (d *Driver) session(ctx context.Context, use func(s *session) error) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	for n := 1; ; n++ {
		err := d.once(ctx, use)
		if stale := (*staleError)(nil); errors.As(err, &stale) && n < staleConnections {
			continue
		}
		return err
	}
}

// staleError is a connection that had died before its transaction began.
type staleError struct{ error }

func (e *staleError) Unwrap() error { return e.error }

func (d *Driver) once(ctx context.Context, use func(s *session) error) (err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return unreachable(ctx, err)
	}
	defer func() { _ = conn.Close() }()
	// The raw connection may be used only while Raw runs, so the transaction runs
	// inside it. ErrBadConn makes the pool close the connection.
	raw := conn.Raw(func(raw any) error {
		s := &session{d: d, ctx: ctx}
		s.conn = d.shadow.Conn(raw.(driver.Conn), sqltx.Rules{
			Begin:    func(context.Context, *sqltx.Conn) error { return s.start() },
			Commit:   func(context.Context, *sqltx.Conn) error { return s.finish() },
			Rollback: func(context.Context, *sqltx.Conn) error { s.rollback(); return nil },
			Refuse:   refuse,
		})
		defer s.rollback() // use may also have panicked, or ended its goroutine
		err = use(s)
		s.rollback()
		if s.lost {
			return driver.ErrBadConn
		}
		return nil
	})
	if err == nil && raw != nil && !errors.Is(raw, driver.ErrBadConn) {
		return unreachable(ctx, raw)
	}
	return err
}

// unreachable is a connection that could not be had. The end of ctx is the
// caller's own doing.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// run runs statements of the driver's own, in one text if the DSN allows it.
func (s *session) run(ctx context.Context, statements ...string) (a answers, err error) {
	if s.d.server.multi {
		statements = []string{strings.Join(statements, ";")}
	}
	for _, text := range statements {
		res, err := s.conn.Text(ctx, text)
		if err != nil {
			s.lost = s.lost || number(err) == 0 || severed(err)
			return a, err
		}
		if err := a.add(res); err != nil {
			return a, err
		}
	}
	return a, nil
}

// add takes the result of one text. go-sql-driver tells of each statement in it.
func (a *answers) add(res driver.Result) error {
	if all, ok := res.(interface {
		AllRowsAffected() []int64
		AllLastInsertIds() []int64
	}); ok {
		a.affected = append(a.affected, all.AllRowsAffected()...)
		a.ids = append(a.ids, all.AllLastInsertIds()...)
		return nil
	}
	n, err := res.RowsAffected()
	id, _ := res.LastInsertId()
	a.affected, a.ids = append(a.affected, n), append(a.ids, id)
	return err
}

// rows is run for statements that select.
func (s *session) rows(ctx context.Context, row func([]driver.Value) error, statements ...string) error {
	if s.d.server.multi {
		statements = []string{strings.Join(statements, ";")}
	}
	for _, text := range statements {
		if err := s.conn.TextRows(ctx, row, text); err != nil {
			s.lost = s.lost || number(err) == 0 || severed(err)
			return err
		}
	}
	return nil
}

// commit runs the statements that end a transaction, COMMIT with them, under a
// context of their own.
func (s *session) commit(statements ...string) (a answers, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), commitPatience)
	defer cancel()
	a, err = s.run(ctx, append(slices.Clip(statements), "COMMIT")...)
	refusal := committed(err)
	switch {
	case refusal == nil:
		s.open = false
	case errors.Is(refusal, store.ErrCommitUnknown):
		s.lost = true
	case !s.lost && !claimMayBeLost(err):
		// A server that says no and then nothing more may have stopped over it, and
		// commit when it is started again.
		if s.rollback(); s.lost {
			refusal = fmt.Errorf("%w: the connection was gone after it was refused: %w", store.ErrCommitUnknown, err)
		}
	}
	return a, refusal
}

// write runs statements of the driver's own as one transaction.
func (s *session) write(statements ...string) (answers, error) {
	if err := s.ctx.Err(); err != nil {
		return answers{}, err
	}
	s.open = true
	return s.commit(s.d.server.begin(statements...)...)
}

// rollback ends what is open. After some errors the transaction is there, after
// others it is gone; ROLLBACK is right in both cases, and nothing else is ever
// sent on the connection after an error. A connection whose answer is no clear
// yes is closed, and the server rolls back by itself.
func (s *session) rollback() {
	if s.lost || !s.open {
		return
	}
	s.open = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), rollbackPatience)
	defer cancel()
	_, err := s.conn.Text(ctx, "ROLLBACK")
	if number(err) == errDeadlock {
		// A cluster may answer the ROLLBACK with what it has not had an opportunity to say.
		_, err = s.conn.Text(ctx, "ROLLBACK")
	}
	s.lost = err != nil
}

// start is the begin of a lent transaction.
func (s *session) start() (err error) {
	s.open = true
	s.begun, err = s.run(s.ctx, s.first...)
	if s.lost && severed(err) && s.ctx.Err() == nil {
		return &staleError{classify(err)}
	}
	return err
}

// finish is its end: the driver's last writes, the messages, and COMMIT.
func (s *session) finish() (err error) {
	failpoint.Hit("mysql/before-commit")
	s.ended, err = s.commit(s.last...)
	return err
}

// lend runs a handler's work in a transaction that first begins, and then the
// driver's own last statements, which finish returns, with the messages enqueued
// by work behind them (rule O1).
func (s *session) lend(ctx context.Context, first []string, work func(context.Context, *sql.Tx) error, finish func() ([]string, error)) (err error) {
	s.first = first
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return err
	}
	return s.lendBegun(ctx, tx, work, finish)
}

func (s *session) lendBegun(ctx context.Context, tx *sqltx.Tx, work func(context.Context, *sql.Tx) error, finish func() ([]string, error)) (err error) {
	s.tx = tx
	s.d.lent.Store(tx.SQL(), s)
	defer func() {
		s.d.lent.Delete(tx.SQL())
		_ = tx.Rollback(ctx) // does nothing after Commit; work may have panicked, or ended its goroutine
	}()
	seen := &witness{Context: ctx}
	if err := work(seen, tx.SQL()); err != nil {
		return s.blame(err)
	}
	failpoint.Hit("mysql/after-work")
	if seen.ended.Load() {
		return ctx.Err() // a statement that this kept from running left no error behind
	}
	if err := tx.Seal(); err != nil {
		return s.blame(err)
	}
	if finish != nil {
		if s.last, err = finish(); err != nil {
			return classify(err)
		}
	}
	messages, err := s.flush()
	if err != nil {
		return err
	}
	s.last = append(s.last, messages...)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if len(messages) > 0 {
		s.d.wakes.Announce()
	}
	return nil
}

// witness is a context that notes whether anybody has found it to be over: one
// that ends when work has returned undoes nothing (rule L13).
type witness struct {
	context.Context //nolint:containedctx // it is one

	ended atomic.Bool
}

func (w *witness) Err() error {
	err := w.Context.Err()
	if err != nil {
		w.ended.Store(true)
	}
	return err
}

// blame returns work's own error, with the sentinel beside it if it was the
// database that failed under work.
func (s *session) blame(err error) error {
	first := s.tx.FirstError()
	if first == nil {
		return err
	}
	s.lost = s.lost || severed(first) || errors.Is(first, context.Canceled) || errors.Is(first, context.DeadlineExceeded)
	if number(first) == 0 && !severed(first) {
		return err
	}
	for _, sentinel := range []error{store.ErrConflict, store.ErrUnavailable, store.ErrDuplicateMessage} {
		if errors.Is(classify(first), sentinel) && !errors.Is(err, sentinel) {
			return &databaseError{work: err, database: classify(first)}
		}
	}
	return err
}

// databaseError reads as work's error and matches the database's too.
type databaseError struct{ work, database error }

func (e *databaseError) Error() string   { return e.work.Error() }
func (e *databaseError) Unwrap() []error { return []error{e.work, e.database} }
