// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"slices"

	"github.com/reprise-go/reprise/store/migrate"
)

// Schema is one part of the database that is migrated by itself.
type Schema struct {
	Name     string
	Database migrate.Database
}

// Schemas returns the library's part and the shop's.
func (d *Database) Schemas() []Schema {
	return []Schema{{"reprise", d.driver}, {"shop", tables{d.url.dialect, d.sql}}}
}

// SchemasFor returns the schemas for the kind of database that the URL begins
// with, to be read: there is no database behind them, and nothing is opened. The
// error is of exit.Usage.
func SchemasFor(flag, url string) ([]Schema, error) {
	d, err := dialectOf(flag, url)
	if err != nil {
		return nil, err
	}
	return []Schema{{"reprise", d.library}, {"shop", tables{d, nil}}}, nil
}

//go:embed migration/*/*.sql
var migrations embed.FS

// tables lets package migrate keep the shop's own tables too.
type tables struct {
	dialect *dialect
	db      *sql.DB
}

var _ migrate.Database = tables{}

// Dialect implements migrate.Database.
func (t tables) Dialect() string { return t.dialect.library.Dialect() }

// Migrations implements migrate.Database.
func (t tables) Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migration/"+t.Dialect())
	if err != nil {
		panic("shop: " + err.Error()) // The directory is compiled in.
	}
	return sub
}

// AppliedMigrations implements migrate.Database.
func (t tables) AppliedMigrations(ctx context.Context) ([]int, error) { return t.applied(ctx, t.db) }

// ApplyMigration implements migrate.Database. Two programs don't migrate side by
// side: the second one waits, and finds nothing left to do.
func (t tables) ApplyMigration(ctx context.Context, version int, statements string) error {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if t.dialect.lockSchema != "" {
		var locked sql.NullInt64
		if err := tx.QueryRowContext(ctx, t.dialect.lockSchema).Scan(&locked); err != nil {
			return err
		}
		if locked.Int64 != 1 {
			return errors.New("another program is migrating the shop's tables and does not end")
		}
	}
	if t.dialect.unlockSchema != "" {
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), t.dialect.unlockSchema) }()
	}
	done, err := t.applied(ctx, tx)
	if err != nil || slices.Contains(done, version) {
		return err
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return err
	}
	return tx.Commit()
}

// applied returns the versions of the shop's migrations that are in force.
func (t tables) applied(ctx context.Context, q querier) ([]int, error) {
	var there int
	err := q.QueryRowContext(ctx, t.dialect.bind(t.dialect.hasTable), "shop_migration").Scan(&there)
	if err != nil || there == 0 {
		return nil, err
	}
	rows, err := q.QueryContext(ctx, `SELECT version FROM shop_migration ORDER BY version`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var versions []int
	for rows.Next() {
		var v int
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		versions = append(versions, v)
	}
	return versions, rows.Err()
}

// querier is what *sql.DB and *sql.Tx have in common for reading.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
