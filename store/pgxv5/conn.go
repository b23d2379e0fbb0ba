// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// rollbackTime bounds the wait for the answer to ROLLBACK. After it the
// connection is closed, which rolls back as well.
const rollbackTime = 5 * time.Second

// commitPatience is how long the answer to a COMMIT, and to what goes out with it, is
// waited for. After it the connection is closed, and the outcome is unknown.
const commitPatience = 30 * time.Second

// acquire lends a connection of the pool.
func (d *Driver) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := d.pool.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	if ended := ctx.Err(); ended != nil {
		return nil, ended
	}
	return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// watchKey names what a connection knows about pg.WatchSQL.
const watchKey = "github.com/reprise-go/reprise/store/pgxv5 watched"

// watched says whether the session of a connection looks after its client by
// itself.
func watched(conn *pgx.Conn) bool {
	on, _ := conn.PgConn().CustomData()[watchKey].(bool)
	return on
}

// watch runs pg.WatchSQL once for each connection. A server on a system that can't
// do it says so, and must not be asked in the claims either.
func watch(ctx context.Context, conn *pgx.Conn) error {
	known := conn.PgConn().CustomData()
	if _, asked := known[watchKey]; asked {
		return nil
	}
	on := false
	err := conn.QueryRow(ctx, pg.WatchSQL, int64(conn.PgConn().PID())).Scan(&on)
	if pg.SQLState(err) == "22023" { // invalid parameter value
		on, err = true, nil
	}
	if err == nil {
		known[watchKey] = on
	}
	return err
}

// rollback ends the transaction that is open on conn. It does not end with ctx,
// but it does not wait for ever for a server that does not answer. An error means
// that the connection is closed, or will be: the pool keeps none that is in a
// transaction.
func rollback(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return errors.New("the connection is closed")
	}
	if conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_, err := conn.Exec(ctx, "rollback")
	return err
}

// Read implements pg.Pool.
func (d *Driver) Read(ctx context.Context, use func(pg.Conn) error) error {
	done, err := d.use()
	if err != nil {
		return err
	}
	defer done()
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return reached(ctx, conn.Conn(), use(plain{conn}))
}

// Write implements pg.Pool. BEGIN rides with the first statement.
func (d *Driver) Write(ctx context.Context, use func(pg.Conn) error) error {
	done, err := d.use()
	if err != nil {
		return err
	}
	defer done()
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	c := conn.Conn()
	if err := use(plain{&front{conn: c, held: []held{begin(pg.BeginWrite)}}}); err != nil {
		err = reached(ctx, c, err)
		_ = rollback(ctx, c)
		return err
	}
	return commit(ctx, c)
}

// reached gives an error under which a connection has broken the name that the
// core knows it by.
func reached(ctx context.Context, conn *pgx.Conn, err error) error {
	if err == nil || !conn.IsClosed() || ctx.Err() != nil || pg.SQLState(err) != "" || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// commit commits, and understands the answer. No context can end it but
// commitPatience.
func commit(ctx context.Context, conn *pgx.Conn) error {
	if conn.PgConn().TxStatus() == 'I' {
		return nil // nothing was done
	}
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	tag, err := conn.Exec(patient, "commit")
	if err != nil {
		return pg.CommitError(err, rollback(ctx, conn) == nil)
	}
	return committed(tag)
}

// committed reads the answer to COMMIT: a transaction that had failed is rolled
// back by it, without an error.
func committed(tag pgconn.CommandTag) error {
	switch tag.String() {
	case "COMMIT":
		return nil
	case "ROLLBACK":
		return errRolledBack
	}
	return fmt.Errorf("%w: COMMIT was answered %q", store.ErrCommitUnknown, tag)
}

var errRolledBack = errors.New("pgxv5: COMMIT was answered ROLLBACK: the transaction had failed")

// querier is *pgxpool.Conn, front, and every pgx.Tx.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// plain is a pg.Conn.
type plain struct{ querier }

func (p plain) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := p.querier.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

func (p plain) Query(ctx context.Context, sql string, row pg.Row, args ...any) error {
	rows, err := p.querier.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}
