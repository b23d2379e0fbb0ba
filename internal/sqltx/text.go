// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// Text sends a text of the driver's own to the raw connection as it is, without
// arguments and without preparing it, so that several statements travel in one
// message where the database allows it. The result is the raw driver's. It must
// not be used where ExecerContext is missing.
func (c *Conn) Text(ctx context.Context, text string) (driver.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.raw.(driver.ExecerContext)
	if !ok {
		return nil, errNoText
	}
	return e.ExecContext(ctx, text, nil)
}

// TextRows is Text for a text that selects: every row of every result set is
// handed to row; the slice is reused. It stops at the first error, of the last
// statement too.
func (c *Conn) TextRows(ctx context.Context, row func([]driver.Value) error, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, ok := c.raw.(driver.QueryerContext)
	if !ok {
		return errNoText
	}
	rows, err := q.QueryContext(ctx, text, nil)
	if err != nil {
		return err
	}
	return errors.Join(eachSet(rows, row), rows.Close())
}

func eachSet(rows driver.Rows, row func([]driver.Value) error) error {
	for {
		if err := eachRow(rows, row); err != nil {
			return err
		}
		more, ok := rows.(driver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return nil
		}
		if err := more.NextResultSet(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var errNoText = errors.New("sqltx: the driver can't run a text without preparing it")
