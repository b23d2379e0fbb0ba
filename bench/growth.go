// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/internal/dbserver"
)

const (
	// fewRows is the ledger that the large one is compared with.
	fewRows = 10_000
	// purgeBatch is that of ledger.Config.
	purgeBatch = 500
	// growthSlice is longer than others: a large ledger has more to forget.
	growthSlice = time.Second
)

// ledgerFill inserts rows as the atomic mode leaves them: completed, with a body of
// about 220 bytes, under ids as those of UUIDv7 keys are, one each 30 ms up to now.
// The oldest tenth has outlived its tombstone and the next one its body.
const ledgerFill = `
INSERT INTO reprise_ledger (claimed_at, completed_at, expires_at, tombstone_until, status, id, token, state, fingerprint,
    caller, operation, key, reference, headers, body)
SELECT at, at, at + CASE WHEN old THEN interval '0' ELSE interval '400 days' END,
    at + CASE WHEN gone THEN interval '0' ELSE interval '400 days' END, 201, id, id,
    CASE WHEN gone THEN 'tombstone' ELSE 'completed' END, decode('01' || h || h, 'hex'), 'customer-' || g %% 1000, 'create-order',
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

// benchGrowth compares a fresh intent on a large ledger with one on a small one,
// and measures what the large one takes up and what its purge costs others.
func benchGrowth(ctx context.Context, r *report, o options) (err error) {
	p, version, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	var services [2]*service[pgx.Tx]
	names := [2]string{"few", "many"}
	for i, rows := range []int{fewRows, o.rows} {
		dsn, err := newDatabase(ctx, p, names[i])
		if err != nil {
			return err
		}
		progress("filling a ledger with %d rows", rows)
		begin := time.Now()
		if err := fillLedger(ctx, p, names[i], rows); err != nil {
			return err
		}
		if services[i], _, err = openPgx(ctx, dsn); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, services[i].close()) }()
		if rows == o.rows {
			if err := reportStorage(ctx, r, p, names[i], fmt.Sprintf("%s; filled in %.0f s", version, time.Since(begin).Seconds())); err != nil {
				return err
			}
		}
	}
	for _, callers := range []int{1, workers} {
		if err := compareGrowth(ctx, r, o, p, callers, services[0], services[1]); err != nil {
			return err
		}
	}
	return benchPurge(ctx, r, o, services[1])
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
		Bench: "growth", Row: "storage of one key, bytes", Ratio: (n[1] + n[2]) / n[0], Runs: 1,
		Detail: fmt.Sprintf("%.0f rows with bodies of about 220 B, a tenth of them tombstones; table %.0f, indexes %.0f (%s); a tombstone's row %s; %s",
			n[0], n[1]/n[0], n[2]/n[0], f[3], f[4], detail),
	})
	return nil
}

func compareGrowth(ctx context.Context, r *report, o options, p *dbserver.Postgres, callers int, few, many *service[pgx.Tx]) error {
	fresh := func(s *service[pgx.Tx]) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error { _, err := s.fresh(ctx); return err }
	}
	base, others, err := alternation{callers: callers, rounds: o.runs, slice: growthSlice, written: written(p)}.run(ctx,
		way{fmt.Sprintf("%d rows", fewRows), fresh(few)}, way{fmt.Sprintf("%d rows", o.rows), fresh(many)})
	if err != nil {
		return err
	}
	ratios := make([]float64, o.runs)
	for i := range ratios {
		ratios[i] = float64(others[0][i].p50) / float64(base[0][i].p50)
	}
	r.add(row{
		Bench: "growth", Row: fmt.Sprintf("%d callers, p50 of a fresh intent: %d rows / %d rows", callers, o.rows, fewRows),
		Ratio: median(ratios), Target: 1.25, AtMost: true, Runs: o.runs,
		Detail: fmt.Sprintf("%.2f to %.2f; %s; against %s", slices.Min(ratios), slices.Max(ratios), others[0].detail(), base[0].detail()),
	})
	return nil
}

// benchPurge measures fresh intents while a purge runs as fast as it can.
func benchPurge(ctx context.Context, r *report, o options, s *service[pgx.Tx]) error {
	const callers = 8
	fresh := func(ctx context.Context) error { _, err := s.fresh(ctx); return err }
	var quiet, purging series
	var purged int
	var took time.Duration
	for round := range o.runs + 1 {
		progress("purge: round %d of %d", round, o.runs)
		q, err := measure(ctx, callers, growthSlice, fresh)
		if err != nil {
			return err
		}
		n, d, during, err := s.purgeDuring(ctx, func() (measured, error) { return measure(ctx, callers, growthSlice, fresh) })
		if err != nil {
			return err
		}
		if round > 0 {
			quiet, purging = append(quiet, q), append(purging, during)
			purged, took = purged+n, took+d
		}
	}
	p50, p99 := make([]float64, o.runs), make([]float64, o.runs)
	for i := range quiet {
		p50[i] = float64(purging[i].p50) / float64(quiet[i].p50)
		p99[i] = float64(purging[i].p99) / float64(quiet[i].p99)
	}
	detail := fmt.Sprintf("%d callers; with the purge %s; without %s; %.0f records purged per second in batches of %d",
		callers, purging.detail(), quiet.detail(), float64(purged)/took.Seconds(), purgeBatch)
	r.add(row{Bench: "growth", Row: "p50 of a fresh intent: purge runs / does not", Ratio: median(p50), Runs: o.runs, Detail: detail})
	r.add(row{Bench: "growth", Row: "p99 of a fresh intent: purge runs / does not", Ratio: median(p99), Runs: o.runs, Detail: "the same slices"})
	return nil
}

// purgeDuring purges, batch after batch, while work runs.
func (s *service[TTx]) purgeDuring(ctx context.Context, work func() (measured, error)) (purged int, took time.Duration, m measured, err error) {
	stop := make(chan struct{})
	var failure error
	var wg sync.WaitGroup
	begin := time.Now()
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, err := s.driver.Purge(ctx, purgeBatch)
			if err == nil && n < purgeBatch {
				err = errors.New("the purge has nothing left to do, so it was not measured; use more rows")
			}
			if err != nil {
				failure = err
				return
			}
			purged += n
		}
	})
	m, err = work()
	close(stop)
	wg.Wait()
	return purged, time.Since(begin), m, errors.Join(err, failure)
}
