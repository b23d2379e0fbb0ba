// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// way is one way to do a job, to be compared with others.
type way struct {
	name string
	do   func(ctx context.Context, caller int) error
}

// alternation measures ways in turn, in short slices, so that whatever else the
// machine does falls upon all of them.
type alternation struct {
	callers, rounds int
	slice           time.Duration
	// written, if not nil, reads how many bytes the database has logged since it was
	// made.
	written func(ctx context.Context) (int64, error)
}

// run returns one series for each way. Round 0 warms up, and every second round
// goes backwards. The first way is the base of all others and has its turn right
// before each of them.
func (a alternation) run(ctx context.Context, ways ...way) (base, others []series, err error) {
	base, others = make([]series, len(ways)-1), make([]series, len(ways)-1)
	for round := range a.rounds + 1 {
		progress("%s and %d more: round %d of %d", ways[0].name, len(ways)-1, round, a.rounds)
		for n := range others {
			if round%2 == 1 {
				n = len(others) - 1 - n
			}
			b, err := a.measure(ctx, ways[0])
			if err != nil {
				return nil, nil, err
			}
			m, err := a.measure(ctx, ways[n+1])
			if err != nil {
				return nil, nil, err
			}
			if round > 0 {
				base[n], others[n] = append(base[n], b), append(others[n], m)
			}
		}
	}
	return base, others, nil
}

func (a alternation) measure(ctx context.Context, w way) (m measured, err error) {
	var before, after int64
	if a.written != nil {
		if before, err = a.written(ctx); err != nil {
			return m, err
		}
	}
	m, err = measureEach(ctx, a.callers, a.slice, w.do)
	if err != nil {
		return m, fmt.Errorf("%s: %w", w.name, err)
	}
	if a.written != nil {
		if after, err = a.written(ctx); err != nil {
			return m, err
		}
	}
	m.written = after - before
	return m, nil
}

// cheaper is how many times less processor time of client and database one request
// of s takes than one of base. It says the same as the ratio of rates where the
// processor is what both wait for, and is hardly touched by what else runs.
func (s series) cheaper(base series) float64 {
	self, _, database := s.cost(0, nil)
	baseSelf, _, baseDatabase := base.cost(0, nil)
	return (baseSelf + baseDatabase) / (self + database)
}

// detail describes a series.
func (s series) detail() string {
	self, _, database := s.cost(0, nil)
	text := fmt.Sprintf("%.0f/s; p50 %.1f p99 %.1f ms; us of processor: database %.0f, client %.0f", s.rate(), s.p50(), s.p99(), database, self)
	if w := s.median(func(m measured) float64 { return float64(m.written) / float64(m.count) }); w > 0 {
		text += fmt.Sprintf("; log %.0f B", w)
	}
	return text + fmt.Sprintf("; foreign %.0f %%", s.foreign(nil))
}
