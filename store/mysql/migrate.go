// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql/driver"
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

//go:embed migration/*.sql
var migrations embed.FS

const (
	migrationTableSQL = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'reprise_migration'"
	// Names of locks belong to the whole server.
	migrationLock = "CONCAT('reprise migrate ', LEFT(SHA1(DATABASE()), 40))"
)

// Dialect implements migrate.Database.
func (d *Driver) Dialect() string { return "mysql" }

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
	err = d.session(ctx, func(s *session) error {
		versions, err = s.applied(ctx)
		return err
	})
	return versions, err
}

// applied reads the versions that the database has.
func (s *session) applied(ctx context.Context) (versions []int, err error) {
	there := false
	err = s.rows(ctx, func([]driver.Value) error { there = true; return nil }, s.d.server.read(migrationTableSQL))
	if err != nil || !there {
		return nil, classify(err)
	}
	err = s.rows(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		versions = append(versions, int(c.Number()))
		return c.Err()
	}, s.d.server.read("SELECT version FROM reprise_migration ORDER BY version"))
	return versions, classify(err)
}

// ApplyMigration implements migrate.Database. MySQL commits each statement that
// defines something by itself, so a migration that is interrupted stays half done;
// its version is not noted, and all its statements may be run again. In a cluster
// they have one order on all nodes, and a lock would be known to one node only.
func (d *Driver) ApplyMigration(ctx context.Context, version int, statements string) error {
	return d.session(ctx, func(s *session) error {
		// Whatever happens, the lock goes with the connection.
		s.lost = true
		if !d.server.galera {
			if err := s.lockMigration(ctx); err != nil {
				return err
			}
		}
		if done, err := s.hasMigration(ctx, version); err != nil || done {
			return err
		}
		for _, statement := range split(statements) {
			if _, err := s.conn.Text(ctx, statement); err != nil {
				return classify(err)
			}
		}
		done, err := s.hasMigration(ctx, version)
		if err == nil && !done {
			return fmt.Errorf("mysql: migration %d did not note itself in reprise_migration", version)
		}
		return err
	})
}

func (s *session) hasMigration(ctx context.Context, version int) (bool, error) {
	versions, err := s.applied(ctx)
	return slices.Contains(versions, version), err
}

// lockMigration waits until no other process migrates this database.
func (s *session) lockMigration(ctx context.Context) error {
	var got int64
	err := s.rows(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		got = c.Number()
		return c.Err()
	}, "SELECT GET_LOCK("+migrationLock+", 60)")
	if err == nil && got != 1 {
		err = fmt.Errorf("%w: another process has been migrating this database for a minute", store.ErrConflict)
	}
	return classify(err)
}
