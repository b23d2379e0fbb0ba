// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/store/pgxv5"
)

// schemeSlice is short, and there are many rounds: the machine is rarely quiet
// for longer.
const schemeSlice = 150 * time.Millisecond

// schemeTables are those of the ways that are tried by hand. Only their indexes
// differ.
const schemeTables = `
CREATE TABLE scheme_ledger (
    id uuid PRIMARY KEY, caller text NOT NULL, operation text NOT NULL, key text NOT NULL, fingerprint bytea NOT NULL, state text NOT NULL,
    token uuid, status bigint, headers text, body bytea, reference text, claimed_at timestamptz NOT NULL,
    completed_at timestamptz, expires_at timestamptz, tombstone_until timestamptz);
CREATE TABLE scheme_claim (LIKE scheme_ledger INCLUDING ALL);
CREATE TABLE scheme_ledger_expiry (LIKE scheme_ledger INCLUDING ALL);
CREATE INDEX ON scheme_ledger_expiry (expires_at);
CREATE TABLE scheme_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), hash uuid NOT NULL, message_id text NOT NULL,
    source text NOT NULL, type text NOT NULL, time timestamptz NOT NULL, data bytea NOT NULL, enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE scheme_outbox_hash (LIKE scheme_outbox INCLUDING ALL);
CREATE UNIQUE INDEX ON scheme_outbox_hash (hash);
CREATE INDEX ON scheme_outbox_hash (xid);
CREATE TABLE scheme_outbox_text (LIKE scheme_outbox INCLUDING ALL);
CREATE UNIQUE INDEX ON scheme_outbox_text (message_id, source);
CREATE UNIQUE INDEX ON scheme_outbox_text (xid, id);
CREATE TABLE scheme_fused (LIKE scheme_ledger INCLUDING ALL, seq bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), hash uuid, message_id text, source text, type text, time timestamptz, data bytea);
CREATE INDEX ON scheme_fused (xid);
`

// benchSchemes measures the ways to keep a ledger on PostgreSQL against each
// other: the choice of docs/adr that says how store/pgxv5 works. All use pgx on
// pools of the same size, over TCP on the loopback, on a server that syncs.
func benchSchemes(ctx context.Context, r *report, o options) (err error) {
	p, version, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	progress("%s", version)
	dsn, err := newDatabase(ctx, p, "schemes")
	if err != nil {
		return err
	}
	if _, err := p.Exec(ctx, "schemes", schemeTables); err != nil {
		return err
	}
	natural, pool, err := openPgx(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, natural.close()) }()
	queued, err := newService(natural.driver, nil, func(ctx context.Context, tx pgx.Tx, id string, content []byte) error {
		b := &pgx.Batch{}
		b.Queue(postgresOrder, id, content)
		return pgxv5.Queue(ctx, tx, b)
	})
	if err != nil {
		return err
	}
	keys, err := natural.prepare(ctx, preparedKeys)
	if err != nil {
		return err
	}
	h := byHand{pool: pool}
	ways := []way{
		{bareOrder, func(ctx context.Context, _ int) error { return h.unkeyed(ctx, false) }},
		{orderEvent, func(ctx context.Context, _ int) error { return h.unkeyed(ctx, true) }},
		{"one at a time: claim row, order, event, update", h.usual},
		{"riding: claim row, update; outbox (hash), (xid)", h.riding(claimRow, updateRow, insertInto("scheme_outbox_hash"))},
		{"riding: lock, insert; outbox without an index", h.riding(claimLock, insertRow("scheme_ledger"), insertInto("scheme_outbox"))},
		{"riding: lock, insert; outbox (hash), (xid)", h.riding(claimLock, insertRow("scheme_ledger"), insertInto("scheme_outbox_hash"))},
		{"riding: lock, insert; outbox (id, source), (xid, id)", h.riding(claimLock, insertRow("scheme_ledger"), insertInto("scheme_outbox_text"))},
		{"riding: ... and ledger (expires_at)", h.riding(claimLock, insertRow("scheme_ledger_expiry"), insertInto("scheme_outbox_text"))},
		{"riding: ... both inserts in one statement", h.riding(claimLock, insertBoth("scheme_ledger_expiry", "scheme_outbox_text"))},
		{"riding: ... by pgconn's own pipeline", h.pipelined},
		{"riding: the record is the message", h.riding(claimLock, insertFused)},
		{"one message: lock, insert, order, outbox", h.oneMessage},
		{"store/pgxv5, natural handler", func(ctx context.Context, _ int) error { _, err := natural.fresh(ctx); return err }},
		{"store/pgxv5, queued", func(ctx context.Context, _ int) error { _, err := queued.fresh(ctx); return err }},
		{"store/pgxv5, replay", replays(natural.again, keys)},
	}
	a := alternation{callers: workers, rounds: o.runs, slice: schemeSlice, written: written(p)}
	chosen := ways[:2]
	for _, w := range ways[2:] {
		if o.chosen(w.name) {
			chosen = append(chosen, w)
		}
	}
	t, err := a.alternate(ctx, "schemes", chosen...)
	if err != nil {
		return err
	}
	targets := map[string]float64{"store/pgxv5, natural handler": 0.8, "store/pgxv5, queued": 1, "store/pgxv5, replay": 4}
	for _, w := range chosen[1:] {
		t.add(r, w.name, bareOrder, targets[w.name])
	}
	if o.chosen("store/pgxv5, natural handler") {
		t.add(r, "store/pgxv5, natural handler", orderEvent, 1)
	}
	return nil
}
