// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// fewRows is the ledger that the large one is compared with.
	fewRows = 10_000
	// manyRows is the large one of PostgreSQL, and someRows that of the others, if the
	// command line doesn't say another number.
	manyRows, someRows = 10_000_000, 1_000_000
	// purgeBatch is that of ledger.Config.
	purgeBatch = 500
	// growthSlice is longer than others: a large ledger has more to forget.
	growthSlice = time.Second
)

// benchGrowth compares a fresh intent on a large ledger with one on a small one,
// and measures what the large one takes up and what its purge costs others.
//
// The ledgers hold records as the atomic mode leaves them: completed, with a body of
// about 220 bytes, under ids as those of UUIDv7 keys are, one each 30 ms up to now.
// The oldest tenth has outlived its tombstone and the next one its body.
func benchGrowth(ctx context.Context, r *report, o options) error {
	for _, part := range []struct {
		name string
		run  func(context.Context, *report, options) error
	}{
		{"postgres", growPostgres},
		{"mariadb", growMariaDB},
		{"sqlite", growSQLite},
	} {
		if !o.chosen(part.name) {
			continue
		}
		if err := part.run(ctx, r, o); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// growth is a small and a large ledger of one database.
type growth[TTx any] struct {
	name      string
	rows      int // of the large one
	few, many *service[TTx]
	// written, if not nil, reads how much the database has logged.
	written func(context.Context) (int64, error)
}

// measure measures what it costs to be large.
func (g growth[TTx]) measure(ctx context.Context, r *report, o options) error {
	for _, callers := range []int{1, workers} {
		if err := g.compare(ctx, r, o, callers); err != nil {
			return err
		}
	}
	return g.purge(ctx, r, o)
}

func (g growth[TTx]) compare(ctx context.Context, r *report, o options, callers int) error {
	fresh := func(s *service[TTx]) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error { _, err := s.fresh(ctx); return err }
	}
	base, others, err := alternation{callers: callers, rounds: o.runs, slice: growthSlice, written: g.written}.run(ctx,
		way{fmt.Sprintf("%d rows", fewRows), fresh(g.few)}, way{fmt.Sprintf("%d rows", g.rows), fresh(g.many)})
	if err != nil {
		return err
	}
	ratios := make([]float64, o.runs)
	for i := range ratios {
		ratios[i] = float64(others[0][i].p50) / float64(base[0][i].p50)
	}
	r.add(row{
		Bench: "growth", Row: fmt.Sprintf("%s: %d callers, p50 of a fresh intent: %d rows / %d rows", g.name, callers, g.rows, fewRows),
		Ratio: median(ratios), Target: 1.25, AtMost: true, Runs: o.runs,
		Detail: fmt.Sprintf("%.2f to %.2f, by processor time %.2f; %s; against %s", slices.Min(ratios), slices.Max(ratios),
			1/others[0].cheaper(base[0]), others[0].detail(), base[0].detail()),
	})
	return nil
}

// purge measures fresh intents while a purge runs. What there is to purge is shared
// out among the rounds.
func (g growth[TTx]) purge(ctx context.Context, r *report, o options) error {
	const callers = 8
	s := g.many
	fresh := func(ctx context.Context) error { _, err := s.fresh(ctx); return err }
	batches := g.rows / 5 / (o.runs + 1) / purgeBatch
	var quiet, purging series
	var purged int
	var took time.Duration
	for round := range o.runs + 1 {
		progress("purge: round %d of %d", round, o.runs)
		q, err := measure(ctx, callers, growthSlice, fresh)
		if err != nil {
			return err
		}
		n, d, during, err := s.purgeDuring(ctx, batches, func() (measured, error) { return measure(ctx, callers, growthSlice, fresh) })
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
	r.add(row{Bench: "growth", Row: g.name + ": p50 of a fresh intent: purge runs / does not", Ratio: median(p50), Runs: o.runs, Detail: detail})
	r.add(row{Bench: "growth", Row: g.name + ": p99 of a fresh intent: purge runs / does not", Ratio: median(p99), Runs: o.runs, Detail: "the same slices"})
	return nil
}

// purgeDuring purges while work runs: so many batches, evenly over a slice, or as many
// as it can. took is how long it did.
func (s *service[TTx]) purgeDuring(ctx context.Context, batches int, work func() (measured, error)) (
	purged int, took time.Duration, m measured, err error,
) {
	if batches == 0 {
		return 0, 0, m, errors.New("there is less than one batch to purge in a round; use more rows or fewer runs")
	}
	stop := make(chan struct{})
	var failure error
	var wg sync.WaitGroup
	wg.Go(func() {
		begin := time.Now()
		defer func() { took = time.Since(begin) }()
		next := time.NewTicker(growthSlice / time.Duration(batches))
		defer next.Stop()
		for range batches {
			n, err := s.driver.Purge(ctx, purgeBatch)
			if err == nil && n < purgeBatch {
				err = fmt.Errorf("the purge found %d records, and there must be enough of them", n)
			}
			if err != nil {
				failure = err
				return
			}
			purged += n
			select {
			case <-stop:
				return
			case <-next.C:
			}
		}
	})
	m, err = work()
	close(stop)
	wg.Wait()
	return purged, took, m, errors.Join(err, failure)
}
