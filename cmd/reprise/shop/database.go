// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/store/migrate"
)

// Database is the shop's database: its own tables and those of the library side by
// side, so that one transaction can write both.
type Database struct {
	url    URL
	sql    *sql.DB
	driver driver
}

// OpenDatabase opens the database with a database/sql driver, sqlDriver or, if
// that is empty, the one that this program links for it. A SQLite file that isn't
// there is made. It refuses what it could not keep its promises with, such as a
// file that is damaged or can't be written. Errors are of package exit.
func OpenDatabase(ctx context.Context, u URL, sqlDriver string) (*Database, error) {
	if sqlDriver == "" {
		sqlDriver = u.dialect.sqlDriver
	}
	db, err := sql.Open(sqlDriver, u.dsn)
	if err != nil {
		return nil, u.refused(err)
	}
	limit(db, u.dialect.connections)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	d, err := u.dialect.open(ctx, db)
	if err != nil {
		return nil, u.refused(errors.Join(err, db.Close()))
	}
	return &Database{url: u, sql: db, driver: d}, nil
}

// openTimeout bounds the time from the first connection to a database that is
// known to be of use.
const openTimeout = 30 * time.Second

// limit makes db a pool of n connections, which are kept while they are needed and
// made anew now and then, so that a server that was added or has taken over gets
// its share.
func limit(db *sql.DB, n int) {
	if n == 0 {
		return
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	db.SetConnMaxIdleTime(5 * time.Minute)
	db.SetConnMaxLifetime(30 * time.Minute)
}

// refused is the error of a database that can't be used.
func (u URL) refused(err error) error {
	hint := u.dialect.advice(err)
	switch _, unreachable := errors.AsType[net.Error](err); {
	case errors.Is(err, migrate.ErrNewer):
		hint = "use the program that migrated it, or a newer one"
	case hint != "":
	case u.path != "":
		hint = "see that the file can be written, is in use by no other program, and was made by this version or an older one"
	case unreachable:
		hint = "see that the server runs there and lets this machine in"
	default:
		hint = "see that it is the right server, and that it works"
	}
	return exit.Refused(hint, "the database %s can't be used: %w", u, err)
}

// Close waits for the transactions that are under way and closes the database.
func (d *Database) Close() error { return errors.Join(d.driver.Close(), d.sql.Close()) }

// Product says which database it is and in which version, for people.
func (d *Database) Product(ctx context.Context) (string, error) {
	var version string
	err := d.sql.QueryRowContext(ctx, d.url.dialect.version).Scan(&version)
	return d.url.dialect.product(version), err
}

// Migrate brings the given schemas, or all if none is given, to what this program
// needs. It changes nothing in a database that a newer program has been at. Errors
// are of package exit.
func (d *Database) Migrate(ctx context.Context, schemas ...Schema) error {
	if len(schemas) == 0 {
		schemas = d.Schemas()
	}
	for _, s := range d.Schemas() {
		if _, err := migrate.Status(ctx, s.Database); err != nil {
			return d.url.refused(err)
		}
	}
	for _, s := range schemas {
		if err := migrate.Up(ctx, s.Database); err != nil {
			return d.url.refused(err)
		}
	}
	return nil
}

// Status lists the migrations of one schema. Errors are of package exit.
func (d *Database) Status(ctx context.Context, s Schema) ([]migrate.Migration, error) {
	all, err := migrate.Status(ctx, s.Database)
	if err != nil {
		return nil, d.url.refused(err)
	}
	return all, nil
}

// prove writes, and changes nothing by it: a database that has all its tables and
// can only be read, such as a replica, is found out at the start.
func (d *Database) prove(ctx context.Context) error {
	if _, err := d.sql.ExecContext(ctx, `DELETE FROM shop_migration WHERE version < 0`); err != nil {
		return d.url.refused(err)
	}
	return nil
}
