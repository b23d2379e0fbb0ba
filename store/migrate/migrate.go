// SPDX-License-Identifier: Apache-2.0

// Package migrate brings a database's schema to what this version of the
// library needs, and says so when it is not.
//
// A driver brings its own migrations, numbered SQL files named NNN_name.up.sql.
// Each notes itself in reprise_migration and is applied in one transaction, so
// that a migration is there or it is not, and two processes that start at the
// same time do not disturb each other.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Database is what a driver provides to be migrated. Every driver of this
// module does. Safe for concurrent use.
type Database interface {
	// Dialect names the kind of database, such as "sqlite".
	Dialect() string
	// Migrations holds the files NNN_name.up.sql, NNN counting from 001.
	Migrations() fs.FS
	// AppliedMigrations returns the versions that the database has, in order; none
	// if it was never migrated. It changes nothing.
	AppliedMigrations(ctx context.Context) ([]int, error)
	// ApplyMigration runs the statements of one migration, which note its version,
	// in one transaction. If the version is there already, put there by another
	// process a moment ago, it does nothing.
	ApplyMigration(ctx context.Context, version int, statements string) error
}

var (
	// ErrBehind means that the database lacks migrations. Up applies them.
	ErrBehind = errors.New("migrate: schema is behind this program")
	// ErrNewer means that the database was migrated by a newer version of this
	// program. It is refused, because its tables may mean something else there.
	ErrNewer = errors.New("migrate: schema is newer than this program")
)

// Migration is one numbered step of a schema.
type Migration struct {
	Version int
	Name    string
	// Applied says whether the database has it.
	Applied bool

	statements string
}

// Up applies the migrations that the database lacks, in order. It is safe to
// call from several processes at once, and returns ErrNewer, changing nothing,
// if the database is ahead of this program.
func Up(ctx context.Context, d Database) error {
	all, err := Status(ctx, d)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Applied {
			continue
		}
		if err := d.ApplyMigration(ctx, m.Version, m.statements); err != nil {
			return fmt.Errorf("migrate: applying %03d_%s: %w", m.Version, m.Name, err)
		}
	}
	return nil
}

// Verify returns nil if the database has exactly the migrations of this
// program, ErrBehind or ErrNewer, with what to do, if it hasn't. It changes
// nothing.
func Verify(ctx context.Context, d Database) error {
	all, err := Status(ctx, d)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.Applied {
			return fmt.Errorf("%w: %03d_%s is missing; run \"reprise migrate up\" or call migrate.Up",
				ErrBehind, m.Version, m.Name)
		}
	}
	return nil
}

// Status lists the migrations of this program and whether the database has
// them. It returns ErrNewer if the database has one that this program does not
// know.
func Status(ctx context.Context, d Database) ([]Migration, error) {
	all, err := migrations(d.Migrations())
	if err != nil {
		return nil, err
	}
	applied, err := d.AppliedMigrations(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: reading the state of the %s schema: %w", d.Dialect(), err)
	}
	for _, version := range applied {
		if version < 1 || version > len(all) {
			return nil, fmt.Errorf("%w: the database has migration %03d, this program knows %d; run the newer program",
				ErrNewer, version, len(all))
		}
		all[version-1].Applied = true
	}
	return all, nil
}

// SQL returns the whole schema as one script, for those who apply schemas with
// a tool of their own. Verify is content with what it leaves.
func SQL(d Database) (string, error) {
	all, err := migrations(d.Migrations())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "-- %03d_%s\n%s\n", m.Version, m.Name, strings.TrimSpace(m.statements))
	}
	return b.String(), nil
}

// migrations reads the files and insists that they count from 1 without a gap,
// so that a version is an index.
func migrations(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	all := make([]Migration, 0, len(names))
	for _, file := range names {
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".up.sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || name == "" {
			return nil, fmt.Errorf("migrate: %q is not named NNN_name.up.sql", file)
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		all = append(all, Migration{Version: version, Name: name, statements: string(text)})
	}
	slices.SortFunc(all, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	for i, m := range all {
		if m.Version != i+1 {
			return nil, fmt.Errorf("migrate: migration %d is missing or there twice", i+1)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("migrate: the driver has no migrations")
	}
	return all, nil
}
