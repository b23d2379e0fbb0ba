// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"
)

//go:embed migration/*.sql
var migrations embed.FS

// Dialect names the kind of database.
const Dialect = "postgres"

// migrationLock is the advisory lock of migrations: "reprise" in ASCII.
const migrationLock int64 = 0x72657072697365

// Migrations holds the schema. Both drivers have the same.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migration")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return files
}

// AppliedMigrations implements migrate.Database.
func (c *Core) AppliedMigrations(ctx context.Context) (versions []int, err error) {
	err = c.read(ctx, func(conn Conn) (err error) {
		versions, err = applied(ctx, conn)
		return err
	})
	return versions, err
}

// migrationTableSQL reads the catalogue. to_regclass would answer from what the
// backend remembers of an earlier look, which the wait for another program's
// migration has made wrong.
const migrationTableSQL = `SELECT count(*) > 0 FROM pg_catalog.pg_class
 WHERE relname = 'reprise_migration' AND relkind = 'r' AND pg_catalog.pg_table_is_visible(oid)`

func applied(ctx context.Context, conn Conn) (versions []int, err error) {
	there := false
	err = conn.Query(ctx, migrationTableSQL, func(scan Scan) error { return scan(&there) })
	if err != nil || !there {
		return nil, err
	}
	err = conn.Query(ctx, "SELECT version FROM reprise_migration ORDER BY version", func(scan Scan) error {
		var version int64
		err := scan(&version)
		versions = append(versions, int(version))
		return err
	})
	return versions, err
}

// ApplyMigration implements migrate.Database.
func (c *Core) ApplyMigration(ctx context.Context, version int, statements string) error {
	return c.write(ctx, func(conn Conn) error {
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", migrationLock); err != nil {
			return err
		}
		for attempt := range 2 {
			versions, err := applied(ctx, conn)
			if err != nil {
				return err
			}
			if slices.Contains(versions, version) {
				return nil
			}
			if attempt > 0 {
				break
			}
			if _, err := conn.Exec(ctx, statements); err != nil {
				return err
			}
		}
		return fmt.Errorf("postgres: migration %d did not note itself in reprise_migration", version)
	})
}
