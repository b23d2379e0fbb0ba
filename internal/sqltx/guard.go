// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// guard is the driver.Conn that a lent *sql.Tx speaks to. It has every optional
// interface; where the raw driver lacks one, it answers as database/sql would
// have acted without it.
type guard struct{ tx *Tx }

// raw is the connection of the transaction.
func (g *guard) raw() driver.Conn { return g.tx.conn.raw }

var (
	_ driver.ConnBeginTx        = (*guard)(nil)
	_ driver.ConnPrepareContext = (*guard)(nil)
	_ driver.ExecerContext      = (*guard)(nil)
	_ driver.QueryerContext     = (*guard)(nil)
	_ driver.NamedValueChecker  = (*guard)(nil)
)

var errNotLent = errors.New("sqltx: this connection is lent out as a transaction only")

func (g *guard) Close() error              { return nil }
func (g *guard) Begin() (driver.Tx, error) { return nil, errNotLent }

func (g *guard) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	t, ok := ctx.Value(txKey{}).(*Tx)
	if !ok {
		return nil, errNotLent
	}
	g.tx = t
	return guardTx{t}, nil
}

// guardTx refuses to end the transaction.
type guardTx struct{ tx *Tx }

func (g guardTx) Commit() error   { return g.tx.refuseEnd("Commit") }
func (g guardTx) Rollback() error { return g.tx.refuseEnd("Rollback") }

func (g *guard) Prepare(query string) (driver.Stmt, error) {
	return g.PrepareContext(context.Background(), query)
}

func (g *guard) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := g.tx.enter(ctx, query); err != nil {
		return nil, err
	}
	ctx, end := g.tx.bound(ctx)
	defer end()
	if err := g.tx.sendAhead(ctx); err != nil {
		return nil, g.tx.leave(late(ctx, err))
	}
	raw, err := prepareRaw(ctx, g.raw(), query)
	if err != nil {
		return nil, g.tx.leave(late(ctx, err))
	}
	s := newStmt(g, raw)
	return s, g.tx.leave(nil)
}

func (g *guard) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := g.raw().(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip // database/sql prepares instead
	}
	if err := g.tx.enter(ctx, query); err != nil {
		return nil, err
	}
	ctx, end := g.tx.bound(ctx)
	defer end()
	s := g.tx.take(ctx, query, len(args))
	if s == nil {
		res, err := e.ExecContext(ctx, g.tx.behind(query), args)
		g.tx.sent(err)
		return res, g.tx.leave(late(ctx, err))
	}
	res, err := execStmt(ctx, s.stmt, args)
	if err != nil {
		s.drop()
	}
	return res, g.tx.leave(late(ctx, err))
}

func (g *guard) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := g.raw().(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := g.tx.enter(ctx, query); err != nil {
		return nil, err
	}
	ctx, end := g.tx.bound(ctx)
	s := g.tx.take(ctx, query, len(args))
	if s == nil {
		raw, err := q.QueryContext(ctx, g.tx.behind(query), args)
		g.tx.sent(err)
		return g.tx.opened(ctx, end, raw, nil, err)
	}
	raw, err := queryStmt(ctx, s.stmt, args)
	if err != nil {
		s.drop()
	}
	return g.tx.opened(ctx, end, raw, s, err)
}

// CheckNamedValue converts an argument as the raw driver would have it. An
// argument that cannot be converted is an error like any other.
func (g *guard) CheckNamedValue(nv *driver.NamedValue) error {
	return g.tx.check(g.raw(), nv)
}

func (t *Tx) check(by any, nv *driver.NamedValue) (err error) {
	t.conn.mu.Lock()
	defer func() { err = t.leave(err) }()
	if c, ok := by.(driver.NamedValueChecker); ok {
		if err = c.CheckNamedValue(nv); !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	v, err := driver.DefaultParameterConverter.ConvertValue(nv.Value)
	if err == nil {
		nv.Value = v
	}
	return err
}

// rows passes on the rows of the raw driver. It belongs to one transaction and
// is silent when that has ended.
type rows struct {
	tx     *Tx
	raw    driver.Rows
	from   *cached         // the statement they come from, if it is the cache's
	ctx    context.Context // they are read under, until end
	end    func()
	failed bool
	closed bool
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

// opened wraps the rows of one query, if it succeeded, and does what leave does.
// end is called when they are closed.
func (t *Tx) opened(ctx context.Context, end func(), raw driver.Rows, from *cached, err error) (driver.Rows, error) {
	if err != nil || raw == nil {
		err = late(ctx, err)
		end()
		return nil, t.leave(err)
	}
	if t.open == nil {
		t.open = map[*rows]struct{}{}
	}
	if from != nil {
		from.busy = true
	}
	r := &rows{tx: t, raw: raw, from: from, ctx: ctx, end: end}
	t.open[r] = struct{}{}
	return r, t.leave(nil)
}

// closeRaw closes the raw rows once. The caller holds conn.mu.
func (r *rows) closeRaw() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.raw.Close()
	r.end()
	if r.from != nil {
		r.from.busy = false
		if r.failed || err != nil {
			r.from.drop()
		}
	}
	return err
}

func (r *rows) Close() error {
	r.tx.conn.mu.Lock()
	err := r.closeRaw()
	delete(r.tx.open, r)
	return r.tx.leave(err)
}

func (r *rows) Next(dest []driver.Value) error {
	if err := r.enter(); err != nil {
		return err
	}
	return r.advanced(r.raw.Next(dest))
}

func (r *rows) enter() error {
	if err := r.tx.enter(context.Background(), ""); err != nil {
		return err
	}
	if r.closed {
		r.tx.conn.mu.Unlock()
		return io.EOF
	}
	return nil
}

// advanced ends what enter began. The end of the rows is not an error.
func (r *rows) advanced(err error) error {
	if errors.Is(err, io.EOF) {
		r.tx.conn.mu.Unlock()
		return err
	}
	r.failed = r.failed || err != nil
	return r.tx.leave(late(r.ctx, err))
}

func (r *rows) HasNextResultSet() bool {
	n, ok := r.raw.(driver.RowsNextResultSet)
	if !ok || r.enter() != nil {
		return false
	}
	defer r.tx.conn.mu.Unlock()
	return n.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	n, ok := r.raw.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	if err := r.enter(); err != nil {
		return err
	}
	return r.advanced(n.NextResultSet())
}

// described reads one property of the columns while the rows are open.
func described[I, V any](r *rows, missing V, read func(I) V) V {
	d, ok := r.raw.(I)
	if !ok {
		return missing
	}
	r.tx.conn.mu.Lock()
	defer r.tx.conn.mu.Unlock()
	if r.closed {
		return missing
	}
	return read(d)
}

func (r *rows) Columns() []string {
	return described(r, nil, driver.Rows.Columns)
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	return described(r, reflect.TypeFor[any](), func(d driver.RowsColumnTypeScanType) reflect.Type {
		return d.ColumnTypeScanType(i)
	})
}

func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	return described(r, "", func(d driver.RowsColumnTypeDatabaseTypeName) string {
		return d.ColumnTypeDatabaseTypeName(i)
	})
}

func (r *rows) ColumnTypeLength(i int) (int64, bool) {
	d, ok := r.raw.(driver.RowsColumnTypeLength)
	if !ok {
		return 0, false
	}
	return d.ColumnTypeLength(i)
}

func (r *rows) ColumnTypeNullable(i int) (nullable, known bool) {
	d, ok := r.raw.(driver.RowsColumnTypeNullable)
	if !ok {
		return false, false
	}
	return d.ColumnTypeNullable(i)
}

func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, known bool) {
	d, ok := r.raw.(driver.RowsColumnTypePrecisionScale)
	if !ok {
		return 0, 0, false
	}
	return d.ColumnTypePrecisionScale(i)
}
