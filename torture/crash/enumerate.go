// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of an enumeration. The zero value is sound.
type Options struct {
	// Workers is how many runs are made at the same time. Defaults to 4.
	Workers int
	// Patience is after how long an intent that does not succeed counts as stuck. It
	// must be far longer than any lease, lock or pause, on a machine that is busy too.
	// Defaults to 5 min.
	Patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.Patience == 0 {
		o.Patience = 5 * time.Minute
	}
	return o
}

// Report is what an enumeration came to.
type Report struct {
	// Points is how many points of an attempt there are for each mode.
	Points map[string]int64
	// Runs counts intents, and Hits the faults that struck.
	Runs, Hits int
	// Violations say what was wrong, and where.
	Violations []string
}

// String returns the report in one line, without the violations.
func (r Report) String() string {
	most := int64(0)
	for _, n := range r.Points {
		most = max(most, n)
	}
	return fmt.Sprintf("%d points x %d modes, %d runs, %d faults struck, %d violations",
		most, len(r.Points), r.Runs, r.Hits, len(r.Violations))
}

// enumeration collects a report from concurrent runs.
type enumeration struct {
	service Service
	// healthy settles every run.
	healthy Program
	options Options
	mu      sync.Mutex
	report  Report
	err     error
}

// enumerate starts what every run needs, and returns what they came to.
func enumerate(ctx context.Context, s Service, o Options, all func(*enumeration)) (Report, error) {
	healthy, err := s.Start(ctx, Injection{})
	if err != nil {
		return Report{}, err
	}
	e := &enumeration{service: s, healthy: healthy, options: o.withDefaults(), report: Report{Points: map[string]int64{}}}
	all(e)
	return e.report, errors.Join(e.err, healthy.Close())
}

// Singles strikes with each mode at each point of an attempt, one for each run.
// A mode that never strikes is a violation.
func Singles(ctx context.Context, s Service, o Options, modes ...string) (Report, error) {
	return enumerate(ctx, s, o, func(e *enumeration) {
		for _, mode := range modes {
			e.each(func(k int64) (hit bool) {
				hits := e.run(ctx, Injection{mode, k})
				if hits[0] {
					e.reached(mode, k)
				}
				return hits[0]
			})
			e.struck(mode)
		}
	})
}

// Pairs strikes with one mode at each point of the first attempt, and with another
// one at each point of its first repeat, for every pair of modes.
func Pairs(ctx context.Context, s Service, o Options, modes ...string) (Report, error) {
	return enumerate(ctx, s, o, func(e *enumeration) {
		for _, first := range modes {
			for _, second := range modes {
				e.each(func(k int64) (hit bool) { return e.repeats(ctx, Injection{first, k}, second) })
				e.struck(both(first, second))
			}
		}
	})
}

// repeats strikes at each point of the repeat that follows a fault, and reports
// whether that fault struck.
func (e *enumeration) repeats(ctx context.Context, first Injection, mode string) bool {
	for k := int64(1); ; k++ {
		hits := e.run(ctx, first, Injection{mode, k})
		if !hits[0] || !hits[1] {
			return hits[0]
		}
		e.reached(both(first.Mode, mode), max(first.At, k))
	}
}

func both(first, second string) string { return first + ", then " + second }

// each calls visit with 1, 2, 3, ..., some at the same time, until a run completes
// without a hit.
func (e *enumeration) each(visit func(k int64) (hit bool)) {
	var mu sync.Mutex
	next, done := int64(1), false
	take := func() (int64, bool) {
		mu.Lock()
		defer mu.Unlock()
		k := next
		next++
		return k, !done
	}
	var wg sync.WaitGroup
	for range e.options.Workers {
		wg.Go(func() {
			for {
				k, ok := take()
				if !ok {
					return
				}
				if !visit(k) {
					mu.Lock()
					done = true
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// run makes one run and notes what came of it. After an error nothing hits.
func (e *enumeration) run(ctx context.Context, faults ...Injection) (hits []bool) {
	hits, violations, err := e.intent(ctx, faults...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report.Runs++
	if err != nil {
		e.err = errors.Join(e.err, err)
		return make([]bool, len(faults))
	}
	for _, hit := range hits {
		if hit {
			e.report.Hits++
		}
	}
	for _, v := range violations {
		e.report.Violations = append(e.report.Violations, where(faults)+": "+v)
	}
	return hits
}

func (e *enumeration) reached(mode string, k int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report.Points[mode] = max(e.report.Points[mode], k)
}

// struck notes a mode that never struck: its runs have proved nothing.
func (e *enumeration) struck(mode string) {
	if e.report.Points[mode] == 0 {
		e.report.Violations = append(e.report.Violations, mode+": never struck")
	}
	slices.Sort(e.report.Violations)
}

// where names the faults of a run.
func where(faults []Injection) string {
	s := make([]string, 0, len(faults))
	for _, f := range faults {
		s = append(s, fmt.Sprintf("%s at point %d", f.Mode, f.At))
	}
	return strings.Join(s, ", then ")
}
