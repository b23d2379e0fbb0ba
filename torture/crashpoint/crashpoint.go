// SPDX-License-Identifier: Apache-2.0

// Package crashpoint wraps a database/sql driver so that a test can stop the
// world at every statement boundary: before a statement is handed to the
// database, and after the database has executed it.
//
// The rule of use is SQLite's own: hit boundary 1, then 2, then 3, until a run
// completes without a hit. Statements that are added later are then covered
// without anybody remembering to.
package crashpoint

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
)

// When says on which side of a statement a boundary lies.
type When string

// The two sides.
const (
	Before When = "before"
	After  When = "after"
)

// Boundary is one place where the process may stop between two facts.
type Boundary struct {
	// Number counts the boundaries of one Driver from 1.
	Number int64
	When   When
	// Statement is the SQL text, or "BEGIN", "COMMIT" or "ROLLBACK" when it came
	// as a call.
	Statement string
}

// Hook is called at every boundary, on the goroutine that executes the
// statement. An error it returns Before keeps the statement from the database,
// and After replaces its result.
type Hook func(Boundary) error

// Driver passes everything on to another driver and calls a Hook at each
// boundary. It is safe for concurrent use if the hook is.
type Driver struct {
	inner driver.Driver
	hook  Hook
	count atomic.Int64
}

// Wrap returns a driver that calls hook around every statement of inner. Register
// it with sql.Register under a name of its own.
func Wrap(inner driver.Driver, hook Hook) *Driver { return &Driver{inner: inner, hook: hook} }

// Open implements driver.Driver.
func (d *Driver) Open(name string) (driver.Conn, error) {
	c, err := d.inner.Open(name)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, d: d}, nil
}

// around calls the hook on both sides of do.
func around[T any](d *Driver, statement string, do func() (T, error)) (T, error) {
	var zero T
	if err := d.at(Before, statement); err != nil {
		return zero, err
	}
	v, err := do()
	if err != nil {
		return v, err // an executed statement that failed is no second fact
	}
	if err := d.at(After, statement); err != nil {
		return zero, err
	}
	return v, nil
}

func (d *Driver) at(w When, statement string) error {
	return d.hook(Boundary{Number: d.count.Add(1), When: w, Statement: statement})
}

// conn is a connection whose statements are boundaries.
type conn struct {
	driver.Conn
	d *Driver
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext implements driver.ConnPrepareContext. Preparing changes nothing
// and is therefore no boundary.
func (c *conn) PrepareContext(ctx context.Context, query string) (s driver.Stmt, err error) {
	if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
		s, err = p.PrepareContext(ctx, query)
	} else {
		s, err = c.Conn.Prepare(query)
	}
	if err != nil {
		return nil, err
	}
	return &stmt{Stmt: s, d: c.d, query: query}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return around(c.d, query, func() (driver.Result, error) { return e.ExecContext(ctx, query, args) })
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return around(c.d, query, func() (driver.Rows, error) { return q.QueryContext(ctx, query, args) })
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t, err := around(c.d, "BEGIN", func() (driver.Tx, error) {
		if b, ok := c.Conn.(driver.ConnBeginTx); ok {
			return b.BeginTx(ctx, opts)
		}
		return c.Conn.Begin() //nolint:staticcheck // the only form that an old driver has
	})
	if err != nil {
		return nil, err
	}
	return &tx{Tx: t, d: c.d}, nil
}

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool {
	if v, ok := c.Conn.(driver.Validator); ok {
		return v.IsValid()
	}
	return true
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// tx is a transaction whose end is a boundary.
type tx struct {
	driver.Tx
	d *Driver
}

// Commit implements driver.Tx.
func (t *tx) Commit() error {
	_, err := around(t.d, "COMMIT", func() (struct{}, error) { return struct{}{}, t.Tx.Commit() })
	return err
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	_, err := around(t.d, "ROLLBACK", func() (struct{}, error) { return struct{}{}, t.Tx.Rollback() })
	return err
}

// stmt is a prepared statement whose executions are boundaries.
type stmt struct {
	driver.Stmt
	d     *Driver
	query string
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return around(s.d, s.query, func() (driver.Result, error) {
		if e, ok := s.Stmt.(driver.StmtExecContext); ok {
			return e.ExecContext(ctx, args)
		}
		return s.Stmt.Exec(values(args)) //nolint:staticcheck // the only form that an old driver has
	})
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return around(s.d, s.query, func() (driver.Rows, error) {
		if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return q.QueryContext(ctx, args)
		}
		return s.Stmt.Query(values(args)) //nolint:staticcheck // the only form that an old driver has
	})
}

// CheckNamedValue implements driver.NamedValueChecker.
func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func values(args []driver.NamedValue) []driver.Value {
	out := make([]driver.Value, len(args))
	for i, a := range args {
		out[i] = a.Value
	}
	return out
}
