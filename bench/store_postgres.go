// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/postgres"
)

// What a service has anyway, and the event as it writes it without a library.
const (
	postgresSchema = `
CREATE TABLE orders (id uuid PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now(), content jsonb NOT NULL);
CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now(),
    topic text NOT NULL, content jsonb NOT NULL);`
	postgresOrder = "INSERT INTO orders (id, content) VALUES ($1, $2)"
	postgresEvent = "INSERT INTO events (topic, content) VALUES ($1, $2)"
)

// openPostgres opens a service on database/sql.
func openPostgres(ctx context.Context, dsn string) (*service[*sql.Tx], *sql.DB, error) {
	return openSQL("pgx", dsn, postgresOrder, func(db *sql.DB) (*postgres.Driver, error) { return postgres.New(ctx, db, nil) })
}

// newDatabase makes a database with the tables of the service and of the library.
func newDatabase(ctx context.Context, p *dbserver.Postgres, name string) (dsn string, err error) {
	if err := p.CreateDatabase(ctx, name, ""); err != nil {
		return "", err
	}
	if _, err := p.Exec(ctx, name, postgresSchema); err != nil {
		return "", err
	}
	dsn = p.DSN(name)
	s, _, err := openPostgres(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return dsn, migrate.Up(ctx, s.driver.(*postgres.Driver))
}

// written reads how far the server's log has come.
func written(p *dbserver.Postgres) func(ctx context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		out, err := p.Exec(ctx, "postgres", "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	}
}

// benchPostgres measures the atomic mode on database/sql.
func benchPostgres(ctx context.Context, r *report, o options) (err error) {
	p, _, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	dsn, err := newDatabase(ctx, p, "standard")
	if err != nil {
		return err
	}
	s, db, err := openPostgres(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	keys, err := s.prepare(ctx, preparedKeys)
	if err != nil {
		return err
	}
	a := alternation{callers: workers, rounds: o.runs, slice: storeSlice, written: written(p)}
	t, err := a.alternate(ctx, "store",
		way{bareOrder, func(ctx context.Context, _ int) error {
			return sqlUnkeyed(ctx, db, false, postgresOrder, postgresEvent)
		}},
		way{orderEvent, func(ctx context.Context, _ int) error { return sqlUnkeyed(ctx, db, true, postgresOrder, postgresEvent) }},
		way{"sql: fresh key + event", func(ctx context.Context, _ int) error { _, err := s.fresh(ctx); return err }},
		way{"sql: replay", replays(s.again, keys)},
	)
	if err != nil {
		return err
	}
	t.add(r, "sql: fresh key + event", orderEvent, 0)
	t.add(r, "sql: fresh key + event", bareOrder, 0)
	t.add(r, "sql: replay", bareOrder, 4)
	err = contention(ctx, r, o, s, "postgres", dsn, func() (*service[*sql.Tx], error) {
		other, _, err := openPostgres(ctx, dsn)
		return other, err
	})
	return errors.Join(err, checkRows(ctx, p.Exec, "standard", s.made.Load()))
}
