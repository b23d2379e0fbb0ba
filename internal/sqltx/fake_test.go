// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// tape is what a raw connection was asked to do. A lock of its own would hide a
// missing one from the race detector, so it has none.
type tape struct {
	said    []string
	running int // statements inside the raw connection at this moment
	err     map[string]error
	open    int // rows and statements that are not closed

	endless chan struct{} // receives a value when a statement begins that never ends
}

func (t *tape) say(format string, args ...any) error {
	t.running++
	defer func() { t.running-- }()
	if t.running != 1 {
		panic("two statements at once on one connection")
	}
	s := fmt.Sprintf(format, args...)
	t.said = append(t.said, s)
	for prefix, err := range t.err {
		if strings.HasPrefix(s, prefix) {
			return err
		}
	}
	return nil
}

func (t *tape) has(s string) bool { return slices.Contains(t.said, s) }

// plainConn has nothing optional: what database/sql asked of drivers in Go 1.0.
type plainConn struct{ tape *tape }

func (c plainConn) Prepare(query string) (driver.Stmt, error) {
	if err := c.tape.say("prepare %s", query); err != nil {
		return nil, err
	}
	c.tape.open++
	return &plainStmt{tape: c.tape, query: query}, nil
}
func (c plainConn) Close() error              { return c.tape.say("close connection") }
func (c plainConn) Begin() (driver.Tx, error) { return nil, errors.New("not by this way") }

type plainStmt struct {
	tape  *tape
	query string
}

func (s *plainStmt) Close() error {
	s.tape.open--
	return s.tape.say("close %s", s.query)
}
func (s *plainStmt) NumInput() int { return strings.Count(s.query, "?") }
func (s *plainStmt) Exec(args []driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), s.tape.say("exec %s %v", s.query, args)
}

func (s *plainStmt) Query(args []driver.Value) (driver.Rows, error) {
	if err := s.tape.say("query %s %v", s.query, args); err != nil {
		return nil, err
	}
	s.tape.open++
	return &plainRows{tape: s.tape, left: 3}, nil
}

type plainRows struct {
	tape *tape
	left int
}

func (r *plainRows) Columns() []string { return []string{"n"} }
func (r *plainRows) Close() error {
	r.tape.open--
	return r.tape.say("close rows")
}

func (r *plainRows) Next(dest []driver.Value) error {
	if err := r.tape.say("next"); err != nil {
		return err
	}
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	dest[0] = []byte(fmt.Sprint(r.left))
	return nil
}

// richConn has everything optional.
type richConn struct{ plainConn }

// run keeps a statement that begins with ENDLESS running until its context
// interrupts it.
func (t *tape) run(ctx context.Context, query string) error {
	if !strings.HasPrefix(query, "ENDLESS") {
		return nil
	}
	return t.hang(ctx)
}

func (t *tape) hang(ctx context.Context) error {
	if t.endless != nil {
		t.endless <- struct{}{}
	}
	<-ctx.Done()
	return errInterrupted
}

var errInterrupted = errors.New("the database says it was interrupted")

func (c richConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if strings.HasPrefix(query, "ENDLESS PREPARE") {
		return nil, c.tape.hang(ctx)
	}
	s, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	return &richStmt{s.(*plainStmt)}, nil
}

func (c richConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.tape.run(ctx, query); err != nil {
		return nil, err
	}
	return driver.RowsAffected(7), c.tape.say("exec directly %s %v", query, values(args))
}

func (c richConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.tape.run(ctx, query); err != nil {
		return nil, err
	}
	if err := c.tape.say("query directly %s %v", query, values(args)); err != nil {
		return nil, err
	}
	c.tape.open++
	return &richRows{plainRows: plainRows{tape: c.tape, left: 1}, sets: 2, ctx: ctx, query: query}, nil
}

// special is an argument that only this driver's own checker understands.
type special struct{ v string }

func (c richConn) CheckNamedValue(nv *driver.NamedValue) error {
	switch v := nv.Value.(type) {
	case special:
		nv.Value = "special " + v.v
		return nil
	case context.Context:
		return driver.ErrRemoveArgument
	}
	return driver.ErrSkip
}

type richStmt struct{ *plainStmt }

func (s *richStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.tape.run(ctx, s.query); err != nil {
		return nil, err
	}
	return driver.RowsAffected(8), s.tape.say("exec prepared %s %v", s.query, values(args))
}

func (s *richStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.tape.run(ctx, s.query); err != nil {
		return nil, err
	}
	if err := s.tape.say("query prepared %s %v", s.query, values(args)); err != nil {
		return nil, err
	}
	s.tape.open++
	return &richRows{plainRows: plainRows{tape: s.tape, left: 1}, sets: 2, ctx: ctx}, nil
}

func values(args []driver.NamedValue) []driver.Value {
	out := make([]driver.Value, len(args))
	for i, a := range args {
		out[i] = a.Value
	}
	return out
}

// convertingConn prepares statements with the deprecated ColumnConverter.
type convertingConn struct{ plainConn }

func (c convertingConn) Prepare(query string) (driver.Stmt, error) {
	s, err := c.plainConn.Prepare(query)
	if err != nil {
		return nil, err
	}
	return converting{s.(*plainStmt)}, nil
}

type converting struct{ *plainStmt }

func (converting) ColumnConverter(i int) driver.ValueConverter { return converter(i) }

type converter int

func (c converter) ConvertValue(v any) (driver.Value, error) {
	return fmt.Sprintf("column %d %v", c, v), nil
}

type richRows struct {
	plainRows
	sets  int
	ctx   context.Context
	query string
}

// Next has a second row that never comes if the query says so.
func (r *richRows) Next(dest []driver.Value) error {
	if r.left == 0 && strings.HasPrefix(r.query, "THEN ENDLESS") {
		return r.tape.hang(r.ctx)
	}
	return r.plainRows.Next(dest)
}

func (r *richRows) HasNextResultSet() bool { return r.sets > 1 }
func (r *richRows) NextResultSet() error {
	if r.sets--; r.sets == 0 {
		return io.EOF
	}
	r.left = 1
	return r.tape.say("next result set")
}
func (r *richRows) ColumnTypeScanType(int) reflect.Type                { return reflect.TypeFor[int32]() }
func (r *richRows) ColumnTypeDatabaseTypeName(int) string              { return "INT4" }
func (r *richRows) ColumnTypeLength(int) (int64, bool)                 { return 4, true }
func (r *richRows) ColumnTypeNullable(int) (nullable, ok bool)         { return true, true }
func (r *richRows) ColumnTypePrecisionScale(int) (p, s int64, ok bool) { return 10, 2, true }
