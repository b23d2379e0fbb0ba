// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"fmt"
	"io/fs"

	"github.com/reprise-go/reprise/store/internal/record"
)

//go:embed migration/*.sql
var migrations embed.FS

// Dialect implements migrate.Database.
func (d *Driver) Dialect() string { return "sqlite" }

// Migrations implements migrate.Database.
func (d *Driver) Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migration")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return files
}

// AppliedMigrations implements migrate.Database.
func (d *Driver) AppliedMigrations(ctx context.Context) (versions []int, err error) {
	there := false
	err = queryRows(ctx, d.db, func([]driver.Value) error { there = true; return nil }, migrationTableSQL)
	if err != nil || !there {
		return nil, err
	}
	err = queryRows(ctx, d.db, func(row []driver.Value) error {
		c := record.Read(row)
		versions = append(versions, int(c.Number()))
		return c.Err()
	}, "SELECT version FROM reprise_migration ORDER BY version")
	return versions, err
}

const migrationTableSQL = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'reprise_migration'"

// ApplyMigration implements migrate.Database.
func (d *Driver) ApplyMigration(ctx context.Context, version int, statements string) error {
	return d.writer.do(ctx, func(s *session) error {
		applied, err := s.applied(version)
		if err != nil || applied {
			return err
		}
		return s.atomic(func() error {
			if err := s.conn.Script(context.Background(), statements); err != nil {
				return classify(err)
			}
			applied, err := s.applied(version)
			if err == nil && !applied {
				return fmt.Errorf("sqlite: migration %d did not note itself in reprise_migration", version)
			}
			return err
		})
	})
}

// applied looks for a version behind the write lock.
func (s *session) applied(version int) (found bool, err error) {
	see := func([]driver.Value) error { found = true; return nil }
	if err := s.conn.Query(context.Background(), see, migrationTableSQL); err != nil || !found {
		return false, err
	}
	found = false
	err = s.conn.Query(context.Background(), see, "SELECT 1 FROM reprise_migration WHERE version = ?", version)
	return found, err
}
