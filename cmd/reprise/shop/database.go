// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the database driver

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// Database is the shop's database: its own tables and those of the library, in
// one file, so that one transaction can write both.
type Database struct {
	SQL    *sql.DB
	Driver *sqlite.Driver
}

// DatabasePath returns the file that a database URL names. The error is of
// exit.Usage; flag says where the URL was given.
func DatabasePath(flag, url string) (string, error) {
	scheme, path, ok := strings.Cut(url, ":")
	switch {
	case !ok:
		return "", exit.Misused("say sqlite:PATH, such as sqlite:shop.db", "%s %q has no scheme", flag, url)
	case scheme != "sqlite":
		return "", exit.Misused("this build knows sqlite:PATH only", "%s %q: there is no driver for %q", flag, url, scheme)
	case strings.HasPrefix(path, "//"):
		return "", exit.Misused("say sqlite:PATH, such as sqlite:shop.db or sqlite:/var/lib/shop.db",
			"%s %q has slashes before its path, as for a host", flag, url)
	case path == "":
		return "", exit.Misused("say sqlite:PATH, such as sqlite:shop.db", "%s %q names no file", flag, url)
	}
	return path, nil
}

// DefaultDriver is the database/sql driver that this program links.
const DefaultDriver = "sqlite"

// OpenDatabase opens the file at path with a database/sql driver, and makes it if
// it isn't there. It refuses what it could not keep its promises with: a file
// that is damaged, locked by somebody else or can't be written.
func OpenDatabase(ctx context.Context, driver, path string) (*Database, error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)"}}
	db, err := sql.Open(driver, "file:"+(&url.URL{Path: filepath.Clean(path)}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	d, err := sqlite.New(ctx, db, &sqlite.Options{DeliveredRetention: keepEvents})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Database{SQL: db, Driver: d}, nil
}

// keepEvents is how long an event stays in the outbox after its delivery, so that
// people can look at it and /effects can count it.
const keepEvents = 30 * 24 * time.Hour

// Close waits for the transactions that are under way and closes the file.
func (d *Database) Close() error { return errors.Join(d.Driver.Close(), d.SQL.Close()) }

// Schema is one part of the database that is migrated by itself.
type Schema struct {
	Name     string
	Database migrate.Database
}

// Schemas returns the library's part and the shop's.
func (d *Database) Schemas() []Schema {
	return []Schema{{"reprise", d.Driver}, {"shop", schema{d.SQL}}}
}

// Migrate brings both parts to what this program needs. It changes nothing in a
// database that a newer program has been at.
func (d *Database) Migrate(ctx context.Context) error {
	for _, s := range d.Schemas() {
		if _, err := migrate.Status(ctx, s.Database); err != nil {
			return err
		}
	}
	for _, s := range d.Schemas() {
		if err := migrate.Up(ctx, s.Database); err != nil {
			return err
		}
	}
	return nil
}

//go:embed migration/*.sql
var migrations embed.FS

// schema lets package migrate keep the shop's own tables too.
type schema struct{ db *sql.DB }

var _ migrate.Database = schema{}

// Dialect implements migrate.Database.
func (schema) Dialect() string { return "sqlite" }

// Migrations implements migrate.Database.
func (schema) Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migration")
	if err != nil {
		panic("shop: " + err.Error()) // The directory is compiled in.
	}
	return sub
}

// AppliedMigrations implements migrate.Database.
func (s schema) AppliedMigrations(ctx context.Context) ([]int, error) { return applied(ctx, s.db) }

// ApplyMigration implements migrate.Database.
func (s schema) ApplyMigration(ctx context.Context, version int, statements string) error {
	tx, err := s.db.BeginTx(ctx, nil) // Immediate: two programs don't migrate side by side.
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	done, err := applied(ctx, tx)
	if err != nil || slices.Contains(done, version) {
		return err
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return err
	}
	return tx.Commit()
}

// applied returns the versions of the shop's migrations that are in force.
func applied(ctx context.Context, q querier) ([]int, error) {
	var there bool
	err := q.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'shop_migration')`).Scan(&there)
	if err != nil || !there {
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
