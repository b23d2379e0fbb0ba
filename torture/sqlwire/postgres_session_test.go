// SPDX-License-Identifier: Apache-2.0

package sqlwire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

// In a partition the server goes on holding the transaction of a client that has
// given up, and lets it go when the connection is reset at last.
func TestPostgresBlackhole(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	p, through := listen(t, sqlwire.Postgres, dsn)
	direct := connectPostgres(t, dsn)
	must(direct.Exec(t.Context(), "CREATE TABLE t (x text UNIQUE)"))(t)
	for when, kept := range map[crashpoint.When]string{crashpoint.Before: "0", crashpoint.After: "1"} {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		p.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
			if at.When != when || at.Statement != "commit" {
				return sqlwire.Fault{}
			}
			cancel()
			return sqlwire.Fault{Kind: sqlwire.Blackhole, Release: release}
		})
		c := must(pgx.Connect(t.Context(), through))(t)
		tx := must(c.Begin(t.Context()))(t)
		must(tx.Exec(t.Context(), "INSERT INTO t VALUES ($1)", string(when)))(t)
		if err := tx.Commit(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the client saw %v", when, err)
		}
		if when == crashpoint.Before {
			const held = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
			if n := rows(t, direct, held)[0]; n != "1" {
				t.Errorf("the server holds %s transactions in the partition, want 1", n)
			}
			close(release)
			waitFor(t, direct, held, "0")
		}
		if n := rows(t, direct, "SELECT count(*)::text FROM t WHERE x = $1", string(when))[0]; n != kept {
			t.Errorf("%s: %s rows, want %s", when, n, kept)
		}
	}
	if n := p.Fired()[sqlwire.Blackhole]; n != 2 {
		t.Errorf("the fault fired %d times, want 2", n)
	}
}

// A statement that waits for a lock is cancelled, in a query of its own and in a
// pipeline.
func TestPostgresCancel(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	p, through := listen(t, sqlwire.Postgres, dsn)
	direct, watch, c := connectPostgres(t, dsn), connectPostgres(t, dsn), connectPostgres(t, through)
	must(direct.Exec(t.Context(), "CREATE TABLE t (x text)"))(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
		lock := must(direct.Begin(t.Context()))(t)
		must(lock.Exec(t.Context(), "LOCK TABLE t"))(t)
		p.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
			if at.When != crashpoint.Before || !strings.HasPrefix(at.Statement, "INSERT") {
				return sqlwire.Fault{}
			}
			release := make(chan struct{})
			go func() {
				waitFor(t, watch, fmt.Sprintf("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %d", at.Session), "Lock")
				close(release)
			}()
			return sqlwire.Fault{Kind: sqlwire.Cancel, Release: release}
		})
		_, err := c.Exec(t.Context(), "INSERT INTO t VALUES ('x')", mode)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "57014" {
			t.Errorf("in mode %v the client saw %v", mode, err)
		}
		if err := lock.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.Fired()[sqlwire.Cancel]; n != 2 {
		t.Errorf("the fault fired %d times, want 2", n)
	}
}

// A pipeline is cut before each of its statements: what was executed before the
// cut is rolled back with its transaction, and kept if COMMIT was among it.
func TestPostgresPipelineCut(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	direct := connectPostgres(t, dsn)
	must(direct.Exec(t.Context(), "CREATE TABLE t (x text)"))(t)
	for at, kept := range []string{"0", "0", "0", "1", "1"} { // before BEGIN, INSERT, COMMIT, SYNC; after SYNC
		p, through := listen(t, sqlwire.Postgres, dsn)
		config := must(pgx.ParseConfig(through))(t)
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		c := must(pgx.ConnectConfig(t.Context(), config))(t)
		p.SetPlan(func(point sqlwire.Point) sqlwire.Fault {
			if point.Number == int64(at+1) {
				return sqlwire.Fault{Kind: sqlwire.Reset}
			}
			return sqlwire.Fault{}
		})
		x := fmt.Sprint("cut", at)
		var b pgx.Batch
		b.Queue("BEGIN")
		b.Queue("INSERT INTO t VALUES ($1)", x)
		b.Queue("COMMIT")
		if err := c.SendBatch(t.Context(), &b).Close(); err == nil {
			t.Errorf("cut at %d: the client saw no error", at)
		}
		waitFor(t, direct, "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND state LIKE '%transaction%'", "0")
		if n := rows(t, direct, "SELECT count(*)::text FROM t WHERE x = $1", x)[0]; n != kept {
			t.Errorf("cut at %d: %s rows, want %s", at, n, kept)
		}
		if n := p.Fired()[sqlwire.Reset]; n != 1 {
			t.Errorf("cut at %d: the fault fired %d times", at, n)
		}
	}
}

// A client that has to give a password can do so through the proxy.
func TestPostgresPassword(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	_, through := listen(t, sqlwire.Postgres, dsn)
	direct := connectPostgres(t, dsn)
	must(direct.Exec(t.Context(), "CREATE ROLE sqlwire LOGIN PASSWORD 'secret'"))(t)
	t.Cleanup(func() { must(direct.Exec(context.Background(), "DROP ROLE sqlwire"))(t) })
	file := rows(t, direct, "SELECT current_setting('hba_file')")[0]
	rules := rows(t, direct, "SELECT pg_read_file($1)", file)[0]
	demand(t, direct, file, "host all sqlwire 127.0.0.1/32 scram-sha-256\n"+rules)
	t.Cleanup(func() { demand(t, direct, file, rules) })
	login := func(password string) error {
		config := must(pgx.ParseConfig(through))(t)
		config.User, config.Password = "sqlwire", password
		c, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			return err
		}
		return c.Close(t.Context())
	}
	for { // the server takes its new rules in its own time
		err := login("wrong")
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "28P01" {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := login("secret"); err != nil {
		t.Error(err)
	}
}

// demand replaces the server's rules of who may connect.
func demand(t *testing.T, c *pgx.Conn, file, rules string) {
	t.Helper()
	var object uint32
	if err := c.QueryRow(context.Background(), "SELECT lo_from_bytea(0, $1)", []byte(rules)).Scan(&object); err != nil {
		t.Fatal(err)
	}
	must(c.Exec(context.Background(), "SELECT lo_export($1, $2)", object, file))(t)
	must(c.Exec(context.Background(), "SELECT pg_reload_conf()"))(t)
}
