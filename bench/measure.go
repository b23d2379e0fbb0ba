// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// measured is what one slice showed.
type measured struct {
	count         int64
	rate          float64 // per second
	p50, p99, max time.Duration
	// used is the processor time of the slice.
	used usage
	// written is what the database logged, in bytes, where that was asked for.
	written int64
}

// measure lets callers repeat do for a while.
func measure(ctx context.Context, callers int, d time.Duration, do func(context.Context) error) (measured, error) {
	return measureEach(ctx, callers, d, func(ctx context.Context, _ int) error { return do(ctx) })
}

// measureEach is measure for a do that is told which caller it acts for.
func measureEach(ctx context.Context, callers int, d time.Duration, do func(ctx context.Context, caller int) error) (measured, error) {
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	times := make([][]time.Duration, callers)
	before := readUsage()
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			for begin := start; begin.Sub(start) < d; {
				if err := do(ctx, i); err != nil {
					failure.CompareAndSwap(nil, &err)
					return
				}
				end := time.Now()
				times[i] = append(times[i], end.Sub(begin))
				begin = end
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	used := readUsage().since(before, took)
	if err := failure.Load(); err != nil {
		return measured{}, *err
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	return measured{
		count: int64(len(all)), rate: float64(len(all)) / took.Seconds(),
		p50: all[len(all)/2], p99: all[len(all)*99/100], max: all[len(all)-1],
		used: used,
	}, nil
}

// series collects the slices of one thing.
type series []measured

func (s series) median(of func(measured) float64) float64 {
	values := make([]float64, len(s))
	for i, m := range s {
		values[i] = of(m)
	}
	return median(values)
}

func (s series) rate() float64 { return s.median(func(m measured) float64 { return m.rate }) }
func (s series) p50() float64  { return s.median(func(m measured) float64 { return ms(m.p50) }) }
func (s series) p99() float64  { return s.median(func(m measured) float64 { return ms(m.p99) }) }

// foreign is in percent; see usage.foreign.
func (s series) foreign(idle map[int]bool) float64 {
	return 100 * s.median(func(m measured) float64 { return m.used.foreign(idle) })
}

// cost is the processor time of one request in microseconds: in this process, in
// the child called server, and in all others that are not idle, which are
// databases.
func (s series) cost(server int, idle map[int]bool) (self, program, database float64) {
	var n float64
	for _, m := range s {
		n += float64(m.count) / 1e6
		self += m.used.self
		for pid, v := range m.used.children {
			switch {
			case pid == server:
				program += v
			case !idle[pid]:
				database += v
			}
		}
	}
	return self / n, program / n, database / n
}

// over returns the ratios of rates, slice by slice, so that both of a pair were
// measured in the same minute.
func (s series) over(base series) []float64 {
	ratios := make([]float64, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = s[i].rate / base[i].rate
	}
	return ratios
}
