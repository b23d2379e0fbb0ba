// SPDX-License-Identifier: Apache-2.0

package sqlwire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

func connectPostgres(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// must returns a value and ends the test if there is none.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func rows(t *testing.T, c *pgx.Conn, query string, args ...any) []string {
	t.Helper()
	r, err := c.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	return must(pgx.CollectRows(r, pgx.RowTo[string]))(t)
}

// What a client can do with PostgreSQL it can do through the proxy.
func TestPostgresPass(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	_, through := listen(t, sqlwire.Postgres, dsn)
	direct, c := connectPostgres(t, dsn), connectPostgres(t, through)
	must(c.Exec(t.Context(), "CREATE TABLE t (x text); CREATE TABLE u (x text UNIQUE)"))(t)

	t.Run("statements of either protocol", func(t *testing.T) {
		must(c.Exec(t.Context(), "INSERT INTO t VALUES ($1)", "extended"))(t)
		must(c.Exec(t.Context(), "INSERT INTO t VALUES ($1)", pgx.QueryExecModeSimpleProtocol, "simple"))(t)
		if got := rows(t, c, "DELETE FROM t RETURNING x"); !slices.Equal(got, []string{"extended", "simple"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a large result and a large parameter", func(t *testing.T) {
		large := strings.Repeat("x", 3<<20)
		if got := rows(t, c, "SELECT $1::text FROM generate_series(1, 3)", large); !slices.Equal(got, []string{large, large, large}) {
			t.Errorf("got %d rows", len(got))
		}
	})
	t.Run("a pipeline with a statement that fails in its middle", func(t *testing.T) {
		var b pgx.Batch
		b.Queue("BEGIN")
		b.Queue("INSERT INTO u VALUES ('a')")
		b.Queue("INSERT INTO u VALUES ('a')")
		b.Queue("COMMIT")
		err := c.SendBatch(t.Context(), &b).Close()
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "23505" {
			t.Errorf("got %v", err)
		}
		if s := c.PgConn().TxStatus(); s != 'E' {
			t.Errorf("the transaction is %q, want E", s)
		}
		must(c.Exec(t.Context(), "ROLLBACK"))(t)
	})
	t.Run("several pipelines under way, and one that asks for its answers early", func(t *testing.T) {
		p := c.PgConn().StartPipeline(t.Context())
		for i := range 3 {
			p.SendQueryParams("SELECT $1::text", [][]byte{fmt.Appendf(nil, "%d", i)}, nil, nil, nil)
			if i == 1 {
				p.SendFlushRequest()
				continue
			}
			if err := p.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("copy in and out", func(t *testing.T) {
		n := must(c.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"x"}, pgx.CopyFromRows([][]any{{"a"}, {"b"}})))(t)
		var out bytes.Buffer
		must(c.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT x FROM t ORDER BY x) TO STDOUT"))(t)
		if n != 2 || out.String() != "a\nb\n" {
			t.Errorf("copied %d in and %q out", n, out.String())
		}
	})
	t.Run("a notification that arrives while the session is idle", func(t *testing.T) {
		must(c.Exec(t.Context(), "LISTEN news"))(t)
		must(direct.Exec(t.Context(), "NOTIFY news, 'hello'"))(t)
		if n := must(c.WaitForNotification(t.Context()))(t); n.Payload != "hello" {
			t.Errorf("got %q", n.Payload)
		}
	})
	t.Run("a client that cancels", func(t *testing.T) {
		config := must(pgx.ParseConfig(through))(t)
		config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 10 * time.Second}
		}
		patient := must(pgx.ConnectConfig(t.Context(), config))(t)
		defer func() { _ = patient.Close(context.Background()) }()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			waitFor(t, direct, "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1")
			cancel()
		}()
		_, err := patient.Exec(ctx, "SELECT pg_sleep(60)")
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "57014" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a session that the server ends", func(t *testing.T) {
		c := connectPostgres(t, through)
		must(direct.Exec(t.Context(), "SELECT pg_terminate_backend($1)", c.PgConn().PID()))(t)
		_, err := c.Exec(t.Context(), "SELECT 1")
		if err == nil {
			t.Error("a session that was ended answered")
		}
	})
}

// waitFor polls until a query answers one text.
func waitFor(t *testing.T, c *pgx.Conn, query, want string) {
	t.Helper()
	for {
		var got string
		if err := c.QueryRow(t.Context(), query).Scan(&got); err != nil {
			t.Error(err)
			return
		}
		if got == want {
			return
		}
	}
}

// The boundaries of a transaction in two pipelines, of a simple query with several
// statements, and of a statement that has to be prepared.
func TestPostgresBoundaries(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	p, through := listen(t, sqlwire.Postgres, dsn)
	got := record(t, p)
	c := connectPostgres(t, through)
	must(c.Exec(t.Context(), "CREATE TABLE t (x text); CREATE TABLE u (x text)"))(t)
	var first, second pgx.Batch
	first.Queue("BEGIN")
	first.Queue("INSERT INTO t VALUES ($1)", "x")
	second.Queue("INSERT INTO u VALUES ($1)", "x")
	second.Queue("COMMIT")
	for _, b := range []*pgx.Batch{&first, &second} {
		if err := c.SendBatch(t.Context(), b).Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"before CONNECT", "after CONNECT",
		"before CREATE TABLE t (x text); CREATE TABLE u (x text)", "after CREATE TABLE t (x text); CREATE TABLE u (x text)",
		"before PREPARE BEGIN; INSERT INTO t VALUES ($1)", "after PREPARE BEGIN; INSERT INTO t VALUES ($1)",
		"before BEGIN", "before INSERT INTO t VALUES ($1)", "before SYNC", "after SYNC",
		"before PREPARE INSERT INTO u VALUES ($1); COMMIT", "after PREPARE INSERT INTO u VALUES ($1); COMMIT",
		"before INSERT INTO u VALUES ($1)", "before COMMIT", "before SYNC", "after SYNC",
	}
	samePoints(t, got(), want)
}

// Each kind of fault at each point of one transaction: what the client is told,
// and what the server keeps.
func TestPostgresFaults(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDatabase(t)
	direct := connectPostgres(t, dsn)
	must(direct.Exec(t.Context(), "CREATE TABLE t (x text)"))(t)
	code := func(want string) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && e.Code == want
		}
	}
	broken := func(err error) bool { _, ok := errors.AsType[*pgconn.PgError](err); return err != nil && !ok }
	for _, row := range []struct {
		name  string
		when  crashpoint.When
		at    string
		fault sqlwire.Fault
		kept  bool
		err   func(error) bool
	}{
		{"COMMIT never arrives", crashpoint.Before, "commit", sqlwire.Fault{Kind: sqlwire.Reset}, false, broken},
		{"the answer to COMMIT is lost", crashpoint.After, "commit", sqlwire.Fault{Kind: sqlwire.Reset}, true, broken},
		{"the server hangs up after COMMIT", crashpoint.After, "commit", sqlwire.Fault{Kind: sqlwire.Close}, true, broken},
		{"COMMIT conflicts", crashpoint.Before, "commit", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.SerializationFailure}, false, code("40001")},
		{"the server shuts down before COMMIT", crashpoint.Before, "commit", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.AdminShutdown}, false, code("57P01")},
		{"the server shuts down after COMMIT", crashpoint.After, "commit", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.AdminShutdown}, true, code("57P01")},
		{"a statement deadlocks", crashpoint.Before, "INSERT INTO t VALUES ($1)", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.DeadlockDetected}, false, code("40P01")},
		{"a statement finds no primary", crashpoint.Before, "begin", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.ReadOnlyTransaction}, false, code("25006")},
		{"no connection is left", crashpoint.Before, "CONNECT", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.TooManyConnections}, false, code("53300")},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, through := listen(t, sqlwire.Postgres, dsn)
			p.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
				if at.When == row.when && at.Statement == row.at {
					return row.fault
				}
				return sqlwire.Fault{}
			})
			status, err := insertPostgres(t, through, row.name)
			if !row.err(err) {
				t.Errorf("the client saw %v", err)
			}
			if status == 'T' {
				t.Error("the client is left in a transaction that goes on")
			}
			if kept := len(rows(t, direct, "SELECT x FROM t WHERE x = $1", row.name)) == 1; kept != row.kept {
				t.Errorf("the row is kept: %v, want %v", kept, row.kept)
			}
			if n := p.Fired()[row.fault.Kind]; n != 1 {
				t.Errorf("the fault fired %d times, want 1", n)
			}
		})
	}
}

// insertPostgres inserts a row in a transaction, and returns what became of the
// session's transaction.
func insertPostgres(t *testing.T, dsn, x string) (status byte, err error) {
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(context.Background()) }()
	tx, err := c.Begin(t.Context())
	if err != nil {
		return c.PgConn().TxStatus(), err
	}
	if _, err = tx.Exec(t.Context(), "INSERT INTO t VALUES ($1)", x); err == nil {
		err = tx.Commit(t.Context())
	}
	if c.IsClosed() {
		return 0, err
	}
	return c.PgConn().TxStatus(), err
}
