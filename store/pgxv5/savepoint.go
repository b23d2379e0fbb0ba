// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// savepoint is a part of a handler's transaction that can be rolled back by
// itself, and with it the error of a statement in it.
type savepoint struct {
	t      *tx
	name   string
	depth  int // how many savepoints there were before it
	closed atomic.Bool
}

var _ pgx.Tx = (*savepoint)(nil)

// Begin sets a savepoint. It goes out in front of the next statement.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	_, end, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t.names++
	s := &savepoint{t: t, name: "reprise_" + strconv.Itoa(t.names), depth: t.depths}
	t.depths++
	t.front.held = append(t.front.held, bare("savepoint "+s.name))
	return s, t.leave(nil)
}

func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	if s.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return s.t.Begin(ctx)
}

// Commit releases the savepoint.
func (s *savepoint) Commit(ctx context.Context) (err error) {
	if s.closed.Swap(true) {
		return pgx.ErrTxClosed
	}
	ctx, end, err := s.t.enter(ctx)
	if err != nil {
		return err
	}
	defer end()
	s.t.depths = s.depth
	_, err = s.t.front.Exec(ctx, "release savepoint "+s.name)
	return s.t.leave(err)
}

// Rollback rolls back to the savepoint, and forgives an error of a statement since
// then, unless it ended the connection or demands that the whole transaction be
// run again.
func (s *savepoint) Rollback(ctx context.Context) (err error) {
	if s.closed.Swap(true) {
		return pgx.ErrTxClosed
	}
	t := s.t
	t.mu.Lock()
	curable := t.first != nil && t.misuse == nil && !t.sealed && t.depth > s.depth && pg.SQLState(t.first) != "" &&
		!errors.Is(pg.Classify(t.first), store.ErrConflict) && !errors.Is(pg.Classify(t.first), store.ErrUnavailable)
	kept := t.first
	if curable {
		t.first = nil
	}
	t.mu.Unlock()
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return err
	}
	defer end()
	t.depths = s.depth
	_, err = t.front.Exec(ctx, "rollback to savepoint "+s.name)
	if err != nil && kept != nil {
		err = errors.Join(kept, err)
	}
	return t.leave(err)
}

func (s *savepoint) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if s.closed.Load() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return s.t.Exec(ctx, sql, args...)
}

func (s *savepoint) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if s.closed.Load() {
		return &rows{failed: pgx.ErrTxClosed}, pgx.ErrTxClosed
	}
	return s.t.Query(ctx, sql, args...)
}

func (s *savepoint) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, _ := s.Query(ctx, sql, args...)
	return row{r}
}

func (s *savepoint) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if s.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return s.t.Prepare(ctx, name, sql)
}

func (s *savepoint) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if s.closed.Load() {
		return 0, pgx.ErrTxClosed
	}
	return s.t.CopyFrom(ctx, table, columns, src)
}

func (s *savepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if s.closed.Load() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return s.t.SendBatch(ctx, b)
}

func (s *savepoint) LargeObjects() pgx.LargeObjects { return s.t.LargeObjects() }

func (s *savepoint) Conn() *pgx.Conn { return s.t.Conn() }
