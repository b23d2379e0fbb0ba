// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
)

// contention measures what one intent costs others: its owner's death, and its
// duplicates.
func contention[TTx any](ctx context.Context, r *report, o options, s *service[TTx], driver, dsn string, open func() (*service[TTx], error)) error {
	if err := takeovers(ctx, r, o, s, driver, dsn); err != nil {
		return err
	}
	return hotKeys(ctx, r, o, s, driver, open)
}

func takeovers[TTx any](ctx context.Context, r *report, o options, s *service[TTx], driver, dsn string) error {
	took, err := s.takeover(ctx, driver, dsn, 20*o.runs)
	if err != nil {
		return err
	}
	r.add(row{
		Bench: "store", Row: driver + ": takeover after SIGKILL of the owner, p99 ms", Ratio: ms(took[len(took)*99/100]), Target: 100, AtMost: true, Runs: len(took),
		Detail: fmt.Sprintf("p50 %.1f ms, longest %.1f ms, of %d owners killed inside of their transactions", ms(took[len(took)/2]), ms(took[len(took)-1]), len(took)),
	})
	return nil
}

func hotKeys[TTx any](ctx context.Context, r *report, o options, s *service[TTx], driver string, open func() (*service[TTx], error)) error {
	other, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = other.close() }()
	var hot, quiet series
	for round := range o.runs {
		progress("hot key on %s: round %d of %d", driver, round+1, o.runs)
		q, err := s.quiet(ctx)
		if err != nil {
			return err
		}
		h, err := s.hotKey(ctx, other)
		if err != nil {
			return err
		}
		hot, quiet = append(hot, h), append(quiet, q)
	}
	longest := func(m measured) float64 { return ms(m.max) }
	r.add(row{
		Bench: "store", Row: fmt.Sprintf("%s: %d duplicates wait, others' longest stall, ms", driver, duplicates),
		Ratio: hot.median(longest), Target: 25, AtMost: true, Runs: o.runs,
		Detail: fmt.Sprintf("%.0f/s, p99 %.1f ms; without duplicates %.1f ms, %.0f/s, p99 %.1f ms; foreign %.0f %%",
			hot.rate(), hot.p99(), quiet.median(longest), quiet.rate(), quiet.p99(), hot.foreign(nil)),
	})
	return nil
}
