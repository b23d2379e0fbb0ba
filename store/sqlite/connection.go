// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/backoff"
	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
)

// connection is the one through which everything is written.
type connection struct {
	*sqltx.Conn
	logSize int64 // Options.LogSize
	page    int64 // the size of a page

	give chan struct{} // closed to end the loan of the raw connection
	gone chan struct{} // closed when it has ended
}

// evidence is the row of one attempt.
type evidence struct {
	id    reprise.IntentID
	token store.Token
}

// connect takes a connection out of db, sets it up and verifies it.
func connect(ctx context.Context, db *sql.DB, o Options) (*connection, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, explain(err)
	}
	c := &connection{logSize: o.LogSize, give: make(chan struct{}), gone: make(chan struct{})}
	lent := make(chan driver.Conn)
	// The raw connection may be used only while Raw runs, so Raw runs for as long
	// as the connection is used. ErrBadConn makes the pool close it afterwards
	// instead of lending it to others with settings that are ours.
	go func() {
		defer close(c.gone)
		_ = conn.Raw(func(raw any) error {
			lent <- raw.(driver.Conn)
			<-c.give
			return driver.ErrBadConn
		})
		_ = conn.Close()
	}()
	var raw driver.Conn
	select {
	case raw = <-lent:
	case <-c.gone:
		return nil, errors.New("sqlite: the connection was lost while it was being opened")
	}
	c.Conn = sqltx.New(raw, sqltx.Rules{
		Begin:    func(context.Context, *sqltx.Conn) error { return c.savepoint() },
		Commit:   func(context.Context, *sqltx.Conn) error { return c.releaseSavepoint() },
		Rollback: func(context.Context, *sqltx.Conn) error { return c.rollbackSavepoint() },
		Refuse:   refuse,
		Reusable: reusable,
	})
	if err := c.setUp(ctx, o.BusyTimeout); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close ends the guard, and with it the loan of the raw connection.
func (c *connection) close() error {
	err := c.Close()
	close(c.give)
	<-c.gone
	return err
}

// exec runs a statement that must not be interrupted.
func (c *connection) exec(query string) error {
	_, err := c.Exec(context.Background(), query)
	return err
}

// pragma reads the first column of the first row of a PRAGMA.
func (c *connection) pragma(query string) (value driver.Value, err error) {
	err = c.Query(context.Background(), func(row []driver.Value) error {
		if value == nil {
			value = row[len(row)-1]
		}
		return nil
	}, query)
	return value, err
}

// The savepoint of one member. One name is enough: it means the innermost.
func (c *connection) savepoint() error        { return c.exec("SAVEPOINT reprise") }
func (c *connection) releaseSavepoint() error { return c.exec("RELEASE reprise") }
func (c *connection) rollbackSavepoint() error {
	return errors.Join(c.exec("ROLLBACK TO reprise"), c.exec("RELEASE reprise"))
}

// beginImmediate takes the write lock, and waits for it until the deadline or
// the end of ctx. SQLite's own busy handler waits up to 100 ms between two
// looks; several processes under load starve each other with that.
func (c *connection) beginImmediate(ctx context.Context, deadline time.Time) error {
	err := untilFree(ctx, deadline, func() error { return c.exec("BEGIN IMMEDIATE") })
	if code(err) == codeBusy {
		return fmt.Errorf("%w: another process kept the write lock: %w", store.ErrConflict, err)
	}
	return classify(err)
}

// untilFree repeats do as long as another process, or another connection of this
// one, has what it needs.
func untilFree(ctx context.Context, deadline time.Time, do func() error) error {
	for {
		err := do()
		if code(err) != codeBusy || time.Now().After(deadline) {
			return err
		}
		if err := backoff.Sleep(ctx, pollBusy); err != nil {
			return err
		}
	}
}

// inTransaction reports whether the shared transaction is still there. SQLite ends it by
// itself after some errors, such as a full disk, and what is then run thinking
// to be inside it would be committed on the spot.
func (c *connection) inTransaction() bool {
	err := c.exec("BEGIN")
	return err != nil && strings.Contains(err.Error(), "within a transaction")
}

// rollback ends the shared transaction and says whether it was still open.
func (c *connection) rollback() (open bool, err error) {
	switch err := c.exec("ROLLBACK"); {
	case err == nil:
		return true, nil
	case strings.Contains(err.Error(), "no transaction is active"):
		return false, nil
	default:
		return false, err
	}
}

// has looks for the row of an attempt.
func (c *connection) has(e *evidence) (found bool, err error) {
	err = c.Query(context.Background(), func([]driver.Value) error { found = true; return nil },
		"SELECT 1 FROM reprise_ledger WHERE id = ? AND token = ?", e.id[:], e.token[:])
	return found, err
}

// overwrite commits something that changes nothing, so that the log has no
// place for a commit whose sync had failed.
func (c *connection) overwrite() error {
	return c.exec(overwriteSQL)
}

const overwriteSQL = "UPDATE reprise_outbox_slot SET position = position WHERE slot = 0"
