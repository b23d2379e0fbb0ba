// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// openSQLite opens a service on a file.
func openSQLite(ctx context.Context, path string) (*service[*sql.Tx], error) {
	db, err := sql.Open(modernc.name, "file:"+path+modernc.options)
	if err != nil {
		return nil, err
	}
	d, err := sqlite.New(ctx, db, nil)
	if err == nil {
		err = migrate.Up(ctx, d)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, content TEXT NOT NULL)")
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newService(d, func() error { return errors.Join(d.Close(), db.Close()) },
		func(ctx context.Context, tx *sql.Tx, id string, content []byte) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders (id, content) VALUES (?, ?)", id, string(content))
			return err
		})
}

// benchStoreSQLite measures what has a target of its own. There is no row for a hot
// key: SQLite has one writer, and a handler that dawdles holds up all others.
func benchStoreSQLite(ctx context.Context, r *report, o options) error {
	progress("SQLite: group commit against a mutex")
	if err := benchGroupCommit(ctx, r, modernc, 64, o.runs); err != nil {
		return err
	}
	_, err := inDirectory(func(dir string) (struct{}, error) {
		path := filepath.Join(dir, "bench.db")
		s, err := openSQLite(ctx, path)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errors.Join(takeovers(ctx, r, o, s, "sqlite", path), s.close())
	})
	return err
}
