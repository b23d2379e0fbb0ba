// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/internal/dbserver"
)

// ledgerFill inserts rows as the atomic mode leaves them: completed, with a body of
// about 220 bytes, under ids as those of UUIDv7 keys are, one each 30 ms up to now.
// The oldest tenth has outlived its tombstone and the next one its body.
const ledgerFill = `
INSERT INTO reprise_ledger (claimed_at, completed_at, expires_at, tombstone_until, due_at, status, id, token, state, fingerprint,
    caller, operation, key, reference, headers, body)
SELECT at, at, at + CASE WHEN old THEN interval '0' ELSE interval '400 days' END,
    at + CASE WHEN gone THEN interval '0' ELSE interval '400 days' END, at + CASE WHEN old THEN interval '0' ELSE interval '400 days' END, 201, id, id,
    CASE WHEN gone THEN 'tombstone' ELSE 'completed' END::reprise_state, decode('01' || h || h, 'hex'), 'customer-' || g %% 1000, 'create-order',
    id::text, '/orders/' || id,
    CASE WHEN NOT gone THEN '{"Content-Type":["application/json"],"Location":["/orders/' || id || '"]}' END,
    CASE WHEN NOT gone THEN convert_to('{"id":"' || id || '","ref":"' || id ||
        '","sku":"coffee-500g","quantity":3,"amount":3600,"currency":"EUR","note":"leave it with the neighbour, please","status":"open"}', 'UTF8') END
FROM (SELECT g, h, at, g <= %[3]d / 5 AS old, g <= %[3]d / 10 AS gone,
        (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || substr(h, 1, 20))::uuid AS id
    FROM (SELECT g, md5(g::text) AS h, now() - (%[3]d - g) * interval '30 milliseconds' AS at
        FROM generate_series(%[1]d, %[2]d) g OFFSET 0) a OFFSET 0) b;`

// fillLedger fills an empty ledger. Indexes are made afterwards, which is faster and
// leaves them as full as appending does.
func fillLedger(ctx context.Context, p *dbserver.Postgres, database string, rows int) error {
	begin := time.Now()
	indexes, err := p.Exec(ctx, database, `SELECT string_agg(pg_get_indexdef(i.indexrelid), ';') FROM pg_index i
		WHERE i.indrelid = 'reprise_ledger'::regclass AND NOT i.indisprimary`)
	if err != nil {
		return err
	}
	key, err := p.Exec(ctx, database, `SELECT 'ALTER TABLE reprise_ledger ADD CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(oid)
		FROM pg_constraint WHERE conrelid = 'reprise_ledger'::regclass AND contype = 'p'`)
	if err != nil {
		return err
	}
	if _, err := p.Exec(ctx, database, `DO $$ DECLARE r record; BEGIN
		FOR r IN SELECT conname FROM pg_constraint WHERE conrelid = 'reprise_ledger'::regclass AND contype = 'p'
		LOOP EXECUTE 'ALTER TABLE reprise_ledger DROP CONSTRAINT ' || r.conname; END LOOP;
		FOR r IN SELECT indexrelid::regclass::text AS name FROM pg_index WHERE indrelid = 'reprise_ledger'::regclass
		LOOP EXECUTE 'DROP INDEX ' || r.name; END LOOP; END $$`); err != nil {
		return err
	}
	const chunk = 250_000
	var filled atomic.Int64
	var group sync.WaitGroup
	failures := make([]error, runtime.NumCPU())
	for lane := range failures {
		group.Go(func() {
			for from := 1 + lane*chunk; from <= rows && failures[lane] == nil; from += len(failures) * chunk {
				to := min(from+chunk-1, rows)
				_, failures[lane] = p.Exec(ctx, database, fmt.Sprintf(ledgerFill, from, to, rows))
				if n := filled.Add(int64(to - from + 1)); rows > chunk {
					progress("%d of %d rows after %.0f s", n, rows, time.Since(begin).Seconds())
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for _, statement := range []string{
		"SET maintenance_work_mem = '1GB'; " + key, "SET maintenance_work_mem = '1GB'; " + indexes,
		"VACUUM (FREEZE, ANALYZE) reprise_ledger", "CHECKPOINT",
	} {
		if _, err := p.Exec(ctx, database, statement); err != nil {
			return err
		}
	}
	return nil
}

// growPostgres is benchGrowth on PostgreSQL.
func growPostgres(ctx context.Context, r *report, o options) (err error) {
	p, version, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	g := growth[pgx.Tx]{name: "postgres", rows: o.size(manyRows), written: written(p)}
	for i, rows := range []int{fewRows, g.rows} {
		name := []string{"few", "many"}[i]
		dsn, err := newDatabase(ctx, p, name)
		if err != nil {
			return err
		}
		progress("filling a ledger with %d rows", rows)
		begin := time.Now()
		if err := fillLedger(ctx, p, name, rows); err != nil {
			return err
		}
		s, _, err := openPgx(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		if i == 0 {
			g.few = s
			continue
		}
		g.many = s
		if err := reportStorage(ctx, r, p, name, fmt.Sprintf("%s; filled in %.0f s", version, time.Since(begin).Seconds())); err != nil {
			return err
		}
	}
	return g.measure(ctx, r, o)
}

// reportStorage says what a key takes up.
func reportStorage(ctx context.Context, r *report, p *dbserver.Postgres, database, detail string) error {
	out, err := p.Exec(ctx, database, `SELECT n, pg_table_size('reprise_ledger'), pg_indexes_size('reprise_ledger'),
		(SELECT string_agg(indexrelid::regclass || ' ' || pg_relation_size(indexrelid) / n, ', ') FROM pg_index WHERE indrelid = 'reprise_ledger'::regclass),
		(SELECT avg(pg_column_size(t.*))::int FROM (SELECT * FROM reprise_ledger WHERE state = 'tombstone' LIMIT 1000) t)
		FROM (SELECT count(*) AS n FROM reprise_ledger) c`)
	if err != nil {
		return err
	}
	f := strings.Split(strings.TrimSpace(out), "|")
	if len(f) != 5 {
		return fmt.Errorf("unexpected sizes: %q", out)
	}
	var n [3]float64
	for i := range n {
		if n[i], err = strconv.ParseFloat(f[i], 64); err != nil {
			return err
		}
	}
	r.add(row{
		Bench: "growth", Row: "postgres: storage of one key, bytes", Ratio: (n[1] + n[2]) / n[0], Runs: 1,
		Detail: fmt.Sprintf("%.0f rows with bodies of about 220 B, a tenth of them tombstones; table %.0f, indexes %.0f (%s); a tombstone's row %s; %s",
			n[0], n[1]/n[0], n[2]/n[0], f[3], f[4], detail),
	})
	return nil
}
