// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
)

// stmt passes on a prepared statement of the raw driver within one transaction.
type stmt struct {
	tx     *Tx
	raw    driver.Stmt
	closed bool
}

var (
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// convertingStmt is a stmt whose raw statement still has the deprecated
// ColumnConverter. Having the method at all changes what database/sql does, so
// only those have it.
type convertingStmt struct {
	*stmt
	by driver.ColumnConverter //nolint:staticcheck // drivers still implement it.
}

func (s convertingStmt) ColumnConverter(i int) driver.ValueConverter { return s.by.ColumnConverter(i) }

// newStmt wraps raw. The caller holds conn.mu.
func newStmt(g *guard, raw driver.Stmt) driver.Stmt {
	s := &stmt{tx: g.tx, raw: raw}
	if g.tx.stmts == nil {
		g.tx.stmts = map[*stmt]struct{}{}
	}
	g.tx.stmts[s] = struct{}{}
	if c, ok := raw.(driver.ColumnConverter); ok { //nolint:staticcheck // drivers still implement it.
		return convertingStmt{stmt: s, by: c}
	}
	return s
}

func (s *stmt) NumInput() int { return s.raw.NumInput() }

func (s *stmt) Close() error {
	s.tx.conn.mu.Lock()
	defer s.tx.conn.mu.Unlock()
	delete(s.tx.stmts, s)
	return s.closeRaw()
}

// closeRaw closes the raw statement once. The caller holds conn.mu.
func (s *stmt) closeRaw() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.raw.Close()
}

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNotLent }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errNotLent }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.tx.enter(ctx, ""); err != nil {
		return nil, err
	}
	ctx, end := s.tx.bound(ctx)
	defer end()
	res, err := execStmt(ctx, s.raw, args)
	return res, s.tx.leave(late(ctx, err))
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.tx.enter(ctx, ""); err != nil {
		return nil, err
	}
	ctx, end := s.tx.bound(ctx)
	raw, err := queryStmt(ctx, s.raw, args)
	return s.tx.opened(ctx, end, raw, nil, err)
}

func (s *stmt) CheckNamedValue(nv *driver.NamedValue) error {
	if _, ok := s.raw.(driver.NamedValueChecker); ok {
		return s.tx.check(s.raw, nv)
	}
	if _, ok := s.tx.conn.raw.(driver.NamedValueChecker); ok {
		return s.tx.check(s.tx.conn.raw, nv)
	}
	if _, ok := s.raw.(driver.ColumnConverter); ok { //nolint:staticcheck // drivers still implement it.
		return driver.ErrSkip // database/sql asks the converter
	}
	return s.tx.check(nil, nv)
}
