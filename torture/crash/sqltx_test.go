// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/mysql"
	"github.com/reprise-go/reprise/store/postgres"
	"github.com/reprise-go/reprise/torture/crash"
)

// sqlDriver is a driver on database/sql.
type sqlDriver interface {
	store.Driver[*sql.Tx]
	migrate.Database
	Close() error
}

// openSQL opens a service on a driver on database/sql.
func openSQL(driver, operation string, open func(context.Context, *sql.DB) (sqlDriver, error)) opener {
	return func(ctx context.Context, dsn string, provider *sql.DB) (crash.Program, error) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, err
		}
		d, err := open(ctx, db)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return openService(d, operation, provider, func(ctx context.Context, tx *sql.Tx, query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		}, closers(db, d))
	}
}

func openPostgres(ctx context.Context, db *sql.DB) (sqlDriver, error) {
	return postgres.New(ctx, db, nil)
}

func openMySQL(ctx context.Context, db *sql.DB) (sqlDriver, error) { return mysql.New(ctx, db, nil) }

func init() {
	for _, operation := range []string{atomicMode, stagedMode, once} {
		programs["postgres "+operation] = openSQL("pgx", operation, openPostgres)
		programs["mysql "+operation] = openSQL("mysql", operation, openMySQL)
	}
}

// migrateUp makes the library's tables and those of the service.
func (d *database) migrateUp(t *testing.T, open func(context.Context, *sql.DB) (sqlDriver, error)) {
	t.Helper()
	driver, err := open(t.Context(), d.db)
	if err == nil {
		err = errors.Join(migrate.Up(t.Context(), driver), driver.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	d.schema(t, schema)
}
