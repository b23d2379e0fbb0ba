// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	_ "github.com/go-sql-driver/mysql" // registers "mysql"

	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/mysql"
)

const (
	mariadbOrder = "INSERT INTO orders (id, content) VALUES (?, ?)"
	mariadbEvent = "INSERT INTO events (topic, content) VALUES (?, ?)"
)

// mariadbSchema is what a service has anyway, and the event as it writes it without
// a library.
var mariadbSchema = []string{
	"CREATE TABLE orders (id char(36) CHARACTER SET ascii PRIMARY KEY, created_at timestamp(6) NOT NULL DEFAULT current_timestamp(6), content json NOT NULL)",
	"CREATE TABLE events (id bigint AUTO_INCREMENT PRIMARY KEY, created_at timestamp(6) NOT NULL DEFAULT current_timestamp(6), topic varchar(255) NOT NULL, content json NOT NULL)",
}

// riding are the options of the connection that let the claim ride with the
// handler's first statement. The baseline has them too: they spare it the round
// trip that prepares a statement.
const riding = "?interpolateParams=true&multiStatements=true"

// openMariaDB opens a service.
func openMariaDB(ctx context.Context, dsn string) (*service[*sql.Tx], *sql.DB, error) {
	return openSQL("mysql", dsn, mariadbOrder, func(db *sql.DB) (*mysql.Driver, error) { return mysql.New(ctx, db, nil) })
}

// startMariaDB starts a server that keeps what it acknowledges.
func startMariaDB(ctx context.Context) (*dbserver.MariaDB, error) {
	progress("starting MariaDB")
	return dbserver.StartMariaDB(ctx, dbserver.MariaDBOptions{Durable: true, Settings: map[string]string{
		"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "2G", "max_connections": "700",
	}})
}

// benchMariaDB measures the atomic mode.
func benchMariaDB(ctx context.Context, r *report, o options) (err error) {
	m, err := startMariaDB(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	for _, database := range []struct{ name, title, options string }{
		{"riding", "mariadb", riding},
		{"plain", "mariadb, default options", ""},
	} {
		if err := mariadbWays(ctx, r, o, m, database.name, database.title, database.options); err != nil {
			return err
		}
	}
	return nil
}

func mariadbWays(ctx context.Context, r *report, o options, m *dbserver.MariaDB, name, title, options string) (err error) {
	if err := m.CreateDatabase(ctx, name); err != nil {
		return err
	}
	for _, statement := range mariadbSchema {
		if _, err := m.Exec(ctx, name, statement); err != nil {
			return err
		}
	}
	dsn := m.DSN(name) + options
	s, db, err := openMariaDB(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := migrate.Up(ctx, s.driver.(*mysql.Driver)); err != nil {
		return err
	}
	keys, err := s.prepare(ctx, preparedKeys)
	if err != nil {
		return err
	}
	fresh, ordered, replay := title+": fresh key + event", title+": fresh key + event with a subject", title+": replay"
	// A subject asks for order, which takes a lock until the commit.
	s.unordered = true
	subjects, _, err := openMariaDB(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subjects.close()) }()
	t, err := alternation{callers: workers, rounds: o.runs, slice: storeSlice}.alternate(ctx, "store",
		way{bareOrder, func(ctx context.Context, _ int) error { return sqlUnkeyed(ctx, db, false, mariadbOrder, mariadbEvent) }},
		way{orderEvent, func(ctx context.Context, _ int) error { return sqlUnkeyed(ctx, db, true, mariadbOrder, mariadbEvent) }},
		way{fresh, func(ctx context.Context, _ int) error { _, err := s.fresh(ctx); return err }},
		way{ordered, func(ctx context.Context, _ int) error { _, err := subjects.fresh(ctx); return err }},
		way{replay, replays(s.again, keys)},
	)
	if err != nil {
		return err
	}
	if strings.Contains(options, "multiStatements") {
		t.add(r, fresh, bareOrder, 0.85)
		t.add(r, fresh, orderEvent, 0)
		t.add(r, ordered, bareOrder, 0)
		t.add(r, replay, bareOrder, 0)
		if err := contention(ctx, r, o, s, "mariadb", dsn, func() (*service[*sql.Tx], error) {
			other, _, err := openMariaDB(ctx, dsn)
			return other, err
		}); err != nil {
			return err
		}
		return checkRows(ctx, m.Exec, name, s.made.Load()+subjects.made.Load())
	}
	t.add(r, fresh, bareOrder, 0)
	t.add(r, fresh, orderEvent, 0)
	return nil
}
