// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/postgres"
)

// tampering is a client library that does not tell all that it does: after has
// the last word on every statement without arguments.
type tampering struct {
	dsn   string
	after func(conn driver.ExecerContext, query string, err error) error
}

func (c tampering) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

func (c tampering) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return tampered{conn.(*stdlib.Conn), c}, nil
}

type tampered struct {
	*stdlib.Conn
	by tampering
}

func (c tampered) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.Conn.ExecContext(ctx, query, args)
	if len(args) > 0 {
		return res, err
	}
	if err = c.by.after(c.Conn, query, err); err == nil && res == nil {
		res = driver.RowsAffected(0)
	}
	return res, err
}

// inside runs the three ways into a transaction with one handler.
func (f *fixture) inside(work func(ctx context.Context, tx *sql.Tx) error) map[string]error {
	f.t.Helper()
	run, owned, err := f.Begin(f.ctx, claim(intent("run")), nil, patience)
	if err != nil || !owned {
		f.t.Fatalf("begin: owned %t, error %v", owned, err)
	}
	c := claim(intent("execute"))
	_, _, execute := f.Execute(f.ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		return completion(c), work(ctx, tx)
	})
	phase := f.Phase(f.ctx, store.Ownership{ID: run.ID, Epoch: run.Epoch}, patience, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
		return store.PhaseWrites{}, work(ctx, tx)
	})
	return map[string]error{"execute": execute, "phase": phase, "transact": f.Transact(f.ctx, work)}
}

// TestCommitAnsweredRollback hides the failure of a statement from the driver, so
// that nothing but the last message can find out that there is nothing to commit.
func TestCommitAnsweredRollback(t *testing.T) {
	t.Parallel()
	dsn := createSchema(t)
	hidden := 0
	db := sql.OpenDB(tampering{dsn, func(_ driver.ExecerContext, query string, err error) error {
		if query == "SELECT 1 / 0" && err != nil {
			hidden++
			return nil
		}
		return err
	}})
	t.Cleanup(func() { _ = db.Close() })
	f := setupOn(t, nil, dsn, openDB(t, dsn), db)

	// The hazard: the client library reports a success.
	tx, err := db.BeginTx(f.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"INSERT INTO orders (ref) VALUES ('hazard')", "SELECT 1 / 0", "COMMIT"} {
		if _, err := tx.ExecContext(f.ctx, query); err != nil {
			t.Fatalf("%s: %v; is there no hazard any more?", query, err)
		}
	}
	_ = tx.Rollback()
	f.want(intent("hazard"), 0, 0)

	for name, err := range f.inside(func(ctx context.Context, tx *sql.Tx) error {
		if err := insert(ctx, tx, intent("ghost")); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "SELECT 1 / 0")
		return errors.Join(err, f.Enqueue(ctx, tx, message("ghost", "a")))
	}) {
		if !errors.Is(err, store.ErrTxMisuse) {
			t.Errorf("%s: %v, want ErrTxMisuse", name, err)
		}
	}
	if hidden != 4 {
		t.Errorf("%d failures were hidden, want 4: nothing was tested", hidden)
	}
	f.want(intent("ghost"), 0, 0)
	f.want(intent("execute"), 0, 0)
	if n := f.count("SELECT count(*) FROM reprise_outbox"); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// TestEndedBehindTheBack ends the transaction where no guard can see it: no record
// and no message may then be kept by itself.
func TestEndedBehindTheBack(t *testing.T) {
	t.Parallel()
	dsn := createSchema(t)
	ended := 0
	db := sql.OpenDB(tampering{dsn, func(conn driver.ExecerContext, query string, err error) error {
		if query == "SELECT 'end'" {
			ended++
			_, err = conn.ExecContext(context.Background(), "ROLLBACK", nil)
		}
		return err
	}})
	t.Cleanup(func() { _ = db.Close() })
	f := setupOn(t, nil, dsn, openDB(t, dsn), db)
	for name, err := range f.inside(func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT 'end'")
		return errors.Join(err, f.Enqueue(ctx, tx, message("ghost", "a")))
	}) {
		if !errors.Is(err, store.ErrTxMisuse) {
			t.Errorf("%s: %v, want ErrTxMisuse", name, err)
		}
	}
	if ended != 3 {
		t.Errorf("%d transactions were ended, want 3: nothing was tested", ended)
	}
	f.want(intent("execute"), 0, 0)
	if n := f.count("SELECT count(*) FROM reprise_outbox"); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// TestStaleConnections ends all sessions of the pool: a transaction that had not
// begun is begun on another connection.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	f := setup(t, nil, "application_name=stale_"+t.Name())
	f.db.SetMaxOpenConns(2)
	f.mustOrder(intent("k-0"))
	if n := f.count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", "stale_"+t.Name()); n == 0 {
		t.Fatal("no session was ended: nothing was tested")
	}
	f.mustOrder(intent("k-1"))
	f.want(intent("k-1"), 1, 1)
}

// TestNew refuses what can't keep the guarantee.
func TestNew(t *testing.T) {
	t.Parallel()
	dsn := createSchema(t)
	for name, c := range map[string]struct {
		db *sql.DB
		o  *postgres.Options
	}{
		"no database":             {nil, nil},
		"asynchronous commits":    {openDB(t, with(dsn, "synchronous_commit=off")), nil},
		"a server that is away":   {openDB(t, "postgres://postgres@127.0.0.1:1/x?sslmode=disable&connect_timeout=1"), nil},
		"a negative retention":    {openDB(t, dsn), &postgres.Options{DeliveredRetention: -1}},
		"an unheard of isolation": {openDB(t, dsn), &postgres.Options{Isolation: sql.LevelLinearizable}},
	} {
		if d, err := postgres.New(t.Context(), c.db, c.o); err == nil {
			t.Errorf("%s was not refused", name)
			_ = d.Close()
		}
	}
	d := mustNew(t, openDB(t, dsn), nil)
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if _, err := d.Find(t.Context(), intent("k")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a closed driver: %v, want ErrUnavailable", err)
	}
}
