// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// rollbackTime bounds the wait for the answer to ROLLBACK. After it the
// connection is closed, which rolls back as well.
const rollbackTime = 5 * time.Second

// guarded is a pg.Conn on the raw connection below a guard.
type guarded struct{ guard *sqltx.Conn }

func (g guarded) Exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	if len(args) == 0 {
		res, err := g.guard.Text(ctx, query)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
	err = g.guard.Direct(func(raw driver.Conn) error {
		res, err := execRaw(ctx, raw, query, named(args))
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	return n, err
}

func (g guarded) Query(ctx context.Context, query string, row pg.Row, args ...any) error {
	return g.guard.Direct(func(raw driver.Conn) error {
		rows, err := queryRaw(ctx, raw, query, named(args))
		if err != nil {
			return err
		}
		return errors.Join(each(rows, row), rows.Close())
	})
}

func named(args []any) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, a := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return values
}

func execRaw(ctx context.Context, raw driver.Conn, query string, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := raw.(driver.ExecerContext); ok {
		if res, err := e.ExecContext(ctx, query, args); !errors.Is(err, driver.ErrSkip) {
			return res, err
		}
	}
	s, err := prepare(ctx, raw, query)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e, ok := s.(driver.StmtExecContext)
	if !ok {
		return nil, errOld
	}
	return e.ExecContext(ctx, args)
}

func queryRaw(ctx context.Context, raw driver.Conn, query string, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := raw.(driver.QueryerContext); ok {
		if rows, err := q.QueryContext(ctx, query, args); !errors.Is(err, driver.ErrSkip) {
			return rows, err
		}
	}
	s, err := prepare(ctx, raw, query)
	if err != nil {
		return nil, err
	}
	q, ok := s.(driver.StmtQueryContext)
	if !ok {
		return nil, errors.Join(errOld, s.Close())
	}
	rows, err := q.QueryContext(ctx, args)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return closing{rows, s}, nil
}

// errOld is for client libraries from before contexts.
var errOld = errors.New("postgres: the client library has no statements with a context; use pgx")

func prepare(ctx context.Context, raw driver.Conn, query string) (driver.Stmt, error) {
	p, ok := raw.(driver.ConnPrepareContext)
	if !ok {
		return nil, errOld
	}
	return p.PrepareContext(ctx, query)
}

// closing are rows that close their statement.
type closing struct {
	driver.Rows
	stmt driver.Stmt
}

func (c closing) Close() error { return errors.Join(c.Rows.Close(), c.stmt.Close()) }

func each(rows driver.Rows, row pg.Row) error {
	values := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(values); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := row(func(dest ...any) error { return scan(values, dest) }); err != nil {
			return err
		}
	}
}

// scan copies values as database/sql would, for the destinations of pg.Conn.
func scan(values []driver.Value, dest []any) error {
	if len(values) != len(dest) {
		return fmt.Errorf("postgres: a row of %d values for %d destinations", len(values), len(dest))
	}
	for i, v := range values {
		if !assign(dest[i], v) {
			return fmt.Errorf("postgres: column %d is %T, which does not fit into %T", i+1, v, dest[i])
		}
	}
	return nil
}

func assign(dest any, v driver.Value) (ok bool) {
	switch d := dest.(type) {
	case *[]byte:
		*d, ok = v.([]byte)
		if *d = append([]byte(nil), *d...); ok && *d == nil {
			*d = []byte{}
		}
		return ok || v == nil
	case *string:
		*d, ok = text(v)
	case **string:
		var s string
		if s, ok = text(v); ok {
			*d = &s
		} else {
			*d = nil
		}
		return ok || v == nil
	case *int64:
		*d, ok = v.(int64)
	case *bool:
		*d, ok = v.(bool)
	case *time.Time:
		*d, ok = v.(time.Time)
	case **time.Time:
		var t time.Time
		if t, ok = v.(time.Time); ok {
			*d = &t
		} else {
			*d = nil
		}
		return ok || v == nil
	}
	return ok
}

func text(v driver.Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}
