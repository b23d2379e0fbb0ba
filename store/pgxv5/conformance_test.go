// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/internal/pgtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/storetest"
)

func TestMain(m *testing.M) {
	pgtest.Own(service)
	goleak.VerifyTestMain(dbtest.Suite{M: m})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(""))
}

// harness opens databases with parameters added to their names.
func harness(parameters string) storetest.Harness[pgx.Tx] {
	return storetest.Harness[pgx.Tx]{
		Create: func(tb testing.TB) string { return dbtest.PostgresDatabase(tb) + parameters },
		Open: func(tb testing.TB, name string) (store.Driver[pgx.Tx], func()) {
			d, stop := openDriver(tb, name, nil)
			return d, stop
		},
		Plain: func(tb testing.TB, name string) storetest.Plain[pgx.Tx] { return plain{openPool(tb, name)} },
		Age:   age,
	}
}

type plain struct {
	pool interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}
}

func (p plain) Begin(ctx context.Context) (pgx.Tx, error) { return p.pool.Begin(ctx) }

func (p plain) Exec(ctx context.Context, tx pgx.Tx, statement string) error {
	_, err := tx.Exec(ctx, statement)
	return err
}

func (p plain) Count(ctx context.Context, tx pgx.Tx, query string) (n int, err error) {
	err = tx.QueryRow(ctx, query).Scan(&n)
	return n, err
}

func (p plain) Commit(ctx context.Context, tx pgx.Tx) error   { return tx.Commit(ctx) }
func (p plain) Rollback(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }
