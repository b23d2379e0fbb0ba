// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
)

// Rules say what a transaction is on one kind of database.
type Rules struct {
	// Begin, Commit and Rollback are the boundaries of one handler's transaction
	// on the raw connection: BEGIN and COMMIT, or savepoints inside a shared
	// transaction. They run under a context that is never cancelled.
	Begin, Commit, Rollback func(ctx context.Context, c *Conn) error
	// Refuse returns why a handler must not run query, or nil. It is called
	// before the database sees the query, and must look at every statement in it.
	Refuse func(query string) error
	// Reusable says whether a query, once prepared, may be run again in later
	// transactions: it is one statement and means the same each time. Defaults to
	// none being so.
	Reusable func(query string) bool
}

// Conn is one raw connection, its prepared statements, and the transactions
// that are lent out on it, one at a time. Its owner calls its methods from one
// goroutine at a time; a handler may use its *sql.Tx from several.
type Conn struct {
	raw    driver.Conn
	rules  Rules
	shadow *Shadow
	owned  bool // the shadow is this Conn's alone

	// mu keeps one statement at a time on raw: a goroutine that a handler left
	// behind may still be inside one when the handler has returned.
	mu       sync.Mutex
	prepared map[string]driver.Stmt // the owner's
	cache    cache                  // the handlers'
}

// New puts raw under guard. The caller has raw to itself until Close.
func New(raw driver.Conn, rules Rules) *Conn {
	c := NewShadow().Conn(raw, rules)
	c.owned = true
	return c
}

// Close ends the guard. The raw connection stays open and its owner's.
func (c *Conn) Close() error {
	c.mu.Lock()
	errs := make([]error, 0, len(c.prepared)+1)
	for _, s := range c.prepared {
		errs = append(errs, s.Close())
	}
	clear(c.prepared)
	c.cache.forget()
	c.mu.Unlock()
	if c.owned {
		errs = append(errs, c.shadow.Close())
	}
	return errors.Join(errs...)
}

// Exec runs one statement of the driver's own and returns how many rows it
// changed. The statement stays prepared; so the set of queries must be finite.
func (c *Conn) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = c.run(ctx, query, args, func(s driver.Stmt, named []driver.NamedValue) error {
		res, err := execStmt(ctx, s, named)
		if err != nil {
			return err
		}
		changed, err = res.RowsAffected()
		return err
	})
	return changed, err
}

// Script runs a text of several statements without arguments, once.
func (c *Conn) Script(ctx context.Context, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.raw.(driver.ExecerContext); ok {
		if _, err := e.ExecContext(ctx, text, nil); !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	s, err := prepareRaw(ctx, c.raw, text)
	if err != nil {
		return err
	}
	_, err = execStmt(ctx, s, nil)
	return errors.Join(err, s.Close())
}

// Query runs one statement of the driver's own and hands each row to row; the
// slice is reused. It stops at the first error.
func (c *Conn) Query(ctx context.Context, row func([]driver.Value) error, query string, args ...any) error {
	return c.run(ctx, query, args, func(s driver.Stmt, named []driver.NamedValue) error {
		rows, err := queryStmt(ctx, s, named)
		if err != nil {
			return err
		}
		return errors.Join(eachRow(rows, row), rows.Close())
	})
}

// run uses the prepared statement of query. One that has failed is not used
// again: what state it is in is the raw driver's secret.
func (c *Conn) run(ctx context.Context, query string, args []any, use func(driver.Stmt, []driver.NamedValue) error) error {
	named, err := namedValues(args)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.prepared[query]
	if !ok {
		if s, err = prepareRaw(ctx, c.raw, query); err != nil {
			return err
		}
		if c.prepared == nil {
			c.prepared = map[string]driver.Stmt{}
		}
		c.prepared[query] = s
	}
	if err := use(s, named); err != nil {
		delete(c.prepared, query)
		_ = s.Close()
		return err
	}
	return nil
}
