// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
)

const (
	// cacheSize bounds how many statements of handlers stay prepared.
	cacheSize = 128
	// cacheLength is how long a query may be to be remembered, in bytes. Longer
	// ones are made of values, and don't come again.
	cacheLength = 4096
)

// cache keeps the statements that handlers run again and again prepared on the
// raw connection: the text of a handler's SQL rarely changes, and preparing it
// costs as much as running it. Everything in it is guarded by Conn.mu.
type cache struct {
	// seen holds the queries that passed Rules.Refuse; the statement is nil until
	// the query comes a second time, or for good if it can't be kept.
	seen map[string]*cached
}

type cached struct {
	stmt driver.Stmt
	uses int
	busy bool // rows of it are open
	once bool // it can't be kept
}

// known reports whether query has passed the rules before.
func (c *cache) known(query string) bool {
	_, ok := c.seen[query]
	return ok
}

// remember notes that query has passed the rules.
func (c *cache) remember(query string, reusable bool) {
	if len(query) > cacheLength {
		return
	}
	if len(c.seen) >= cacheSize {
		c.forget()
	}
	if c.seen == nil {
		c.seen = map[string]*cached{}
	}
	c.seen[query] = &cached{once: !reusable}
}

// forget closes all statements that no rows are read from.
func (c *cache) forget() {
	for query, s := range c.seen {
		if s.busy {
			continue
		}
		if s.stmt != nil {
			_ = s.stmt.Close()
		}
		delete(c.seen, query)
	}
}

// take returns the prepared statement of a query that takes n arguments, or nil
// if it has to be run without one.
func (c *cache) take(ctx context.Context, raw driver.Conn, query string, n int) *cached {
	s := c.seen[query]
	if s == nil || s.once || s.busy {
		return nil
	}
	if s.uses++; s.uses == 1 {
		return nil
	}
	if s.stmt == nil {
		stmt, err := prepareRaw(ctx, raw, query)
		if err != nil {
			s.once = ctx.Err() == nil // it says nothing of the query if the time was up
			return nil
		}
		s.stmt = stmt
		s.once = converts(stmt)
	}
	if in := s.stmt.NumInput(); s.once || in >= 0 && in != n {
		return nil
	}
	return s
}

// converts reports whether a statement has a say in how its arguments are
// converted. By now they have been, without it.
func converts(s driver.Stmt) bool {
	_, checker := s.(driver.NamedValueChecker)
	_, converter := s.(driver.ColumnConverter) //nolint:staticcheck // drivers still implement it.
	return checker || converter
}

// drop closes a statement that has failed: what state it is in is the raw
// driver's secret.
func (s *cached) drop() {
	if s != nil && s.stmt != nil {
		_ = s.stmt.Close()
		s.stmt = nil
	}
}
