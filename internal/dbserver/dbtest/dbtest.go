// SPDX-License-Identifier: Apache-2.0

// Package dbtest gives tests real database servers: one of each kind for each
// test process, started by the first test that asks for it. Tests share the
// server and have databases of their own.
//
// A server that can't be started fails the test; nothing is ever skipped.
//
//	func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }
//
// With goleak: goleak.VerifyTestMain(dbtest.Suite{M: m}).
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver"
)

// Runner is what *testing.M is.
type Runner interface{ Run() int }

// Suite runs M and then stops the servers that its tests have started.
type Suite struct{ M Runner }

// Run returns the exit code: that of the tests, or 1 if a server did not stop.
func (s Suite) Run() int {
	code := s.M.Run()
	err := errors.Join(bouncer.stop(), postgres.stop(), mariadb.stop(), galera.stop())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Main runs the tests of a package and then stops their servers. Without it,
// they end with the process and their directories stay until the next start.
func Main(m *testing.M) int { return Suite{M: m}.Run() }

// stopper is what every kind of server is.
type stopper interface{ Stop() error }

// shared is one server of the process. The first to ask starts it; an error
// stays, so that a hundred tests don't wait a hundred times.
type shared[S stopper] struct {
	once    sync.Once
	server  S
	err     error
	started bool
}

func (s *shared[S]) get(tb testing.TB, start func(context.Context) (S, error)) S {
	tb.Helper()
	s.once.Do(func() {
		// It outlives the test that is the first to ask.
		s.server, s.err = start(context.WithoutCancel(tb.Context()))
		s.started = s.err == nil
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

func (s *shared[S]) stop() error {
	s.once.Do(func() {}) // Nobody may start it from now on.
	if !s.started {
		return nil
	}
	return s.server.Stop()
}

var (
	postgres shared[*dbserver.Postgres]
	mariadb  shared[*dbserver.MariaDB]
	galera   shared[*dbserver.Galera]
	bouncer  shared[*dbserver.PgBouncer]

	databases atomic.Int64 // Numbers the databases of this process.
)

// Postgres returns the PostgreSQL server of this process, which is not durable.
func Postgres(tb testing.TB) *dbserver.Postgres {
	tb.Helper()
	return postgres.get(tb, func(ctx context.Context) (*dbserver.Postgres, error) {
		return dbserver.StartPostgres(ctx, dbserver.PostgresOptions{})
	})
}

// PostgresDatabase returns the URL of a fresh empty database of Postgres. It is
// dropped when the test ends.
func PostgresDatabase(tb testing.TB) (dsn string) {
	tb.Helper()
	return Postgres(tb).DSN(PostgresDatabaseName(tb))
}

// PostgresDatabaseName is PostgresDatabase for those who come another way, for
// example through PgBouncer.
func PostgresDatabaseName(tb testing.TB) string {
	tb.Helper()
	server := Postgres(tb)
	name := databaseName()
	if err := server.CreateDatabase(tb.Context(), name, ""); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.DropDatabase(context.Background(), name); err != nil {
			tb.Error(err)
		}
	})
	return name
}

// MariaDB returns the MariaDB server of this process, which is not durable.
func MariaDB(tb testing.TB) *dbserver.MariaDB {
	tb.Helper()
	return mariadb.get(tb, func(ctx context.Context) (*dbserver.MariaDB, error) {
		return dbserver.StartMariaDB(ctx, dbserver.MariaDBOptions{})
	})
}

// MariaDBDatabase returns the data source name of a fresh empty database of
// MariaDB. It is dropped when the test ends.
func MariaDBDatabase(tb testing.TB) (dsn string) {
	tb.Helper()
	server := MariaDB(tb)
	name := databaseName()
	if err := server.CreateDatabase(tb.Context(), name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.DropDatabase(context.Background(), name); err != nil {
			tb.Error(err)
		}
	})
	return server.DSN(name)
}

// Galera returns the Galera cluster of this process: three nodes.
func Galera(tb testing.TB) *dbserver.Galera {
	tb.Helper()
	return galera.get(tb, dbserver.StartGalera)
}

// PgBouncer returns the pooler of this process, in front of Postgres.
func PgBouncer(tb testing.TB) *dbserver.PgBouncer {
	tb.Helper()
	server := Postgres(tb)
	return bouncer.get(tb, func(ctx context.Context) (*dbserver.PgBouncer, error) {
		return dbserver.StartPgBouncer(ctx, server)
	})
}

func databaseName() string { return fmt.Sprintf("test%d", databases.Add(1)) }
