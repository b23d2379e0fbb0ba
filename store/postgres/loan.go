// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// loan is a connection on loan from the pool. It goes back only if it is clean:
// nothing is open on it, and every answer was understood.
type loan struct {
	guard *sqltx.Conn
	conn  pg.Conn
	rows  int64 // the count of the first message
	// prepared says that the session has the statements of pg.PrepareText.
	prepared bool
	clean    bool
}

// tries is how many connections are tried before the first message of a
// transaction gets through: those of a pool are stale when the server was
// restarted. Nothing has happened before that.
const tries = 3

// within borrows a connection, sends first, and hands it to use. The whole of it
// runs inside (*sql.Conn).Raw, so that database/sql never sees a statement that it
// might run again, and closes the connection if use panics.
func (d *Driver) within(ctx context.Context, first string, use func(l *loan) error) error {
	done, err := d.use()
	if err != nil {
		return err
	}
	defer done()
	for n := 1; ; n++ {
		again := false
		err := d.borrow(ctx, func(l *loan) error {
			res, err := l.guard.Text(ctx, first)
			if err == nil {
				l.rows, err = res.RowsAffected()
			}
			if err != nil {
				again = n < tries && stale(err) && ctx.Err() == nil
				l.clean = pg.SQLState(err) != "" && l.rollback(ctx) == nil
				return started(ctx, err)
			}
			return use(l)
		})
		if !again {
			return err
		}
	}
}

// started is what an error of the first message means.
func started(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	if pg.SQLState(err) == "" {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return pg.Classify(err)
}

// stale says whether an error of the first message is that of a connection that
// was dead before.
func stale(err error) bool {
	state := pg.SQLState(err)
	return state == "" || strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08")
}

func (d *Driver) borrow(ctx context.Context, use func(l *loan) error) (err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	defer conn.Close()
	err = conn.Raw(func(raw any) error {
		l := &loan{}
		l.guard = d.shadow.Conn(raw.(driver.Conn), sqltx.Rules{
			Begin:    nothing, // the first message has begun it
			Commit:   nothing, // the last message commits
			Rollback: nothing,
			Refuse:   pg.Refuse,
		})
		l.conn = guarded{l.guard}
		defer l.guard.Close()
		used := use(l)
		if !l.clean {
			return &discarded{used}
		}
		return used
	})
	if gone, ok := errors.AsType[*discarded](err); ok {
		return gone.err
	}
	return err
}

func nothing(context.Context, *sqltx.Conn) error { return nil }

// discarded makes database/sql close the connection.
type discarded struct{ err error }

func (d *discarded) Error() string { return "postgres: the connection is not used again" }
func (d *discarded) Unwrap() error { return driver.ErrBadConn }

// rollback ends the transaction. It does not end with ctx, but it does not wait
// for ever for a server that does not answer.
func (l *loan) rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_, err := l.guard.Text(ctx, "ROLLBACK")
	return err
}

// commit sends text, which ends in COMMIT. No context can end it.
func (l *loan) commit(ctx context.Context, text string) error {
	_, err := l.guard.Text(context.WithoutCancel(ctx), text)
	if err == nil {
		l.clean = true
		return nil
	}
	l.clean = pg.SQLState(err) != "" && l.rollback(ctx) == nil
	return pg.CommitError(err, l.clean)
}

// pool is the driver as the core sees it.
type pool struct{ d *Driver }

var _ pg.Pool = pool{}

// Read implements pg.Pool. database/sql may run these statements again; they
// change nothing.
func (p pool) Read(ctx context.Context, use func(pg.Conn) error) error {
	done, err := p.d.use()
	if err != nil {
		return err
	}
	defer done()
	conn, err := p.d.db.Conn(ctx)
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	defer conn.Close()
	return use(pooled{conn})
}

// Write implements pg.Pool.
func (p pool) Write(ctx context.Context, use func(pg.Conn) error) error {
	return p.d.within(ctx, pg.BeginWrite, func(l *loan) error {
		if err := use(l.conn); err != nil {
			l.clean = l.rollback(ctx) == nil
			return err
		}
		return l.commit(ctx, "COMMIT")
	})
}

// queryer is *sql.Conn and *sql.Tx.
type queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// pooled is a pg.Conn through database/sql.
type pooled struct{ queryer }

func (p pooled) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := p.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (p pooled) Query(ctx context.Context, query string, row pg.Row, args ...any) (err error) {
	rows, err := p.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
