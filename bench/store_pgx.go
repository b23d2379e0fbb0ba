// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/store/pgxv5"
)

// openPgx opens a service on a pool of pgx.
func openPgx(ctx context.Context, dsn string) (*service[pgx.Tx], *pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns, config.MinConns = workers, 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	d, err := pgxv5.New(ctx, pool, nil)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	s, err := newService(d, func() error {
		err := d.Close()
		pool.Close()
		return err
	}, func(ctx context.Context, tx pgx.Tx, id string, content []byte) error {
		_, err := tx.Exec(ctx, postgresOrder, id, content)
		return err
	})
	return s, pool, err
}

// benchPgx measures the atomic mode on the driver that pipelines.
func benchPgx(ctx context.Context, r *report, o options) (err error) {
	p, _, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	dsn, err := newDatabase(ctx, p, "pgx")
	if err != nil {
		return err
	}
	s, pool, err := openPgx(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// The same handler, but for its statement, which it needs no answer of.
	writes, err := newService(s.driver, nil, func(ctx context.Context, tx pgx.Tx, id string, content []byte) error {
		b := new(pgx.Batch)
		b.Queue(postgresOrder, id, content)
		return pgxv5.Queue(ctx, tx, b)
	})
	if err != nil {
		return err
	}
	keys, err := s.prepare(ctx, preparedKeys)
	if err != nil {
		return err
	}
	a := alternation{callers: workers, rounds: o.runs, slice: storeSlice, written: written(p)}
	t, err := a.alternate(ctx, "store",
		way{bareOrder, func(ctx context.Context, _ int) error { return pgxUnkeyed(ctx, pool, false) }},
		way{orderEvent, func(ctx context.Context, _ int) error { return pgxUnkeyed(ctx, pool, true) }},
		way{"pgx: fresh key + event", func(ctx context.Context, _ int) error { _, err := s.fresh(ctx); return err }},
		way{"pgx: one-shot + event", func(ctx context.Context, _ int) error { _, err := writes.fresh(ctx); return err }},
		way{"pgx: replay", replays(s.again, keys)},
	)
	if err != nil {
		return err
	}
	t.add(r, "pgx: fresh key + event", orderEvent, 1.0)
	t.add(r, "pgx: fresh key + event", bareOrder, 0.80)
	t.add(r, orderEvent, bareOrder, 0)
	t.add(r, "pgx: one-shot + event", bareOrder, 1.0)
	t.add(r, "pgx: replay", bareOrder, 4)
	err = contention(ctx, r, o, s, "pgx", dsn, func() (*service[pgx.Tx], error) {
		other, _, err := openPgx(ctx, dsn)
		return other, err
	})
	return errors.Join(err, checkRows(ctx, p.Exec, "pgx", s.made.Load()+writes.made.Load()))
}

// pgxUnkeyed is what a service does without keys.
func pgxUnkeyed(ctx context.Context, pool *pgxpool.Pool, event bool) error {
	id, content := newOrder()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, postgresOrder, id, content)
		if err == nil && event {
			_, err = tx.Exec(ctx, postgresEvent, "order.created", content)
		}
		return err
	})
}
