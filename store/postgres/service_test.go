// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/internal/pgtest"
	"github.com/reprise-go/reprise/store/postgres"
)

// service is how the proofs that both drivers for PostgreSQL share reach this one.
var service = pgtest.Harness[*sql.Tx]{Open: openService, Number: number}

func TestHotKey(t *testing.T)        { t.Parallel(); pgtest.HotKey(t, service) }
func TestTakeover(t *testing.T)      { t.Parallel(); pgtest.Takeover(t, service) }
func TestCommitUnknown(t *testing.T) { t.Parallel(); pgtest.CommitUnknown(t, service) }
func TestResolveWaits(t *testing.T)  { t.Parallel(); pgtest.ResolveWaits(t, service) }
func TestDurableReplay(t *testing.T) { t.Parallel(); pgtest.DurableReplay(t, service) }
func TestDurableReplayBesideFailover(t *testing.T) {
	t.Parallel()
	pgtest.DurableReplayBesideFailover(t, service)
}

func openService(ctx context.Context, dsn string, o pgtest.Options) (pgtest.Driver[*sql.Tx], func(), error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxIdleConns(o.Connections)
	if o.Route != nil {
		_ = db.Close()
		db = sql.OpenDB(route(o.Route))
		db.SetMaxIdleConns(-1)
	}
	db.SetMaxOpenConns(o.Connections)
	d, err := postgres.New(ctx, db, &postgres.Options{DurableReplay: o.DurableReplay})
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return d, func() {
		_ = d.Close()
		_ = db.Close()
	}, nil
}

// route is a connector that asks for the data source of each connection.
type route func() (dsn string)

func (r route) Connect(ctx context.Context) (driver.Conn, error) {
	config, err := pgx.ParseConfig(r())
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*config).Connect(ctx)
}

func (route) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

func number(ctx context.Context, tx *sql.Tx, statement string, args ...any) (n int64, err error) {
	err = tx.QueryRowContext(ctx, statement, args...).Scan(&n)
	return n, err
}
