// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/internal/pgtest"
	"github.com/reprise-go/reprise/store/pgxv5"
)

// service is how the proofs that both drivers for PostgreSQL share reach this one.
var service = pgtest.Harness[pgx.Tx]{Open: openService, Number: number}

func TestHotKey(t *testing.T)        { t.Parallel(); pgtest.HotKey(t, service) }
func TestTakeover(t *testing.T)      { t.Parallel(); pgtest.Takeover(t, service) }
func TestCommitUnknown(t *testing.T) { t.Parallel(); pgtest.CommitUnknown(t, service) }
func TestResolveWaits(t *testing.T)  { t.Parallel(); pgtest.ResolveWaits(t, service) }
func TestDurableReplay(t *testing.T) { t.Parallel(); pgtest.DurableReplay(t, service) }
func TestDurableReplayBesideFailover(t *testing.T) {
	t.Parallel()
	pgtest.DurableReplayBesideFailover(t, service)
}

func openService(ctx context.Context, dsn string, o pgtest.Options) (pgtest.Driver[pgx.Tx], func(), error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(o.Connections)
	if o.Route != nil {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			next, err := pgx.ParseConfig(o.Route())
			if err != nil {
				return err
			}
			*c = *next
			return nil
		}
		config.AfterRelease = func(*pgx.Conn) bool { return false }
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	d, err := pgxv5.New(ctx, pool, &pgxv5.Options{DurableReplay: o.DurableReplay})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return d, func() {
		_ = d.Close()
		pool.Close()
	}, nil
}

func number(ctx context.Context, tx pgx.Tx, statement string, args ...any) (n int64, err error) {
	err = tx.QueryRow(ctx, statement, args...).Scan(&n)
	return n, err
}
