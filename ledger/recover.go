// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

const (
	// recoverPage is how many runs are listed at once, and recoverParallel how many
	// are driven at once: one that hangs must not hold up the others.
	recoverPage, recoverParallel = 100, 8
	// recoverLimit is the longest pause between two recoveries of one run.
	recoverLimit = 5 * time.Minute
)

// RecoveryReport says what one pass of recovery did.
type RecoveryReport struct {
	// Found counts lapsed runs; each is in exactly one of the following.
	Found int `json:"found"`
	// Completed runs have their result now.
	Completed int `json:"completed"`
	// Withdrawn runs were refused before their first step.
	Withdrawn int `json:"withdrawn"`
	// Pending runs stopped again and stay in progress.
	Pending int `json:"pending"`
	// Lost runs were taken over by somebody else first.
	Lost int `json:"lost"`
	// Unhandled runs are of operations that this process has no handler for. They
	// are left as they are.
	Unhandled int `json:"unhandled"`
}

// Recover makes one pass over the runs whose lease has lapsed and drives each of
// them on from its recovery point (rule S6). The error is that of the store or of
// ctx; what the pass did until then is in the report.
func (l *Ledger[TTx]) Recover(ctx context.Context) (RecoveryReport, error) {
	return l.recoverPass(ctx, nil)
}

// RunRecovery makes a pass every Config.RecoverEvery until ctx ends, and then
// returns nil. A run that stops again and again is driven after growing pauses,
// up to five minutes, which its own client's attempts don't wait for.
func (l *Ledger[TTx]) RunRecovery(ctx context.Context) error {
	p := &pace{every: l.config.RecoverEvery, due: make(map[reprise.IntentID]time.Time)}
	unhandled := 0
	for ctx.Err() == nil {
		report, err := l.recoverPass(ctx, p)
		switch {
		case ctx.Err() != nil: // Stopped on its way.
		case err != nil:
			l.config.Logger.WarnContext(ctx, "ledger: recovery could not finish its pass", "error", err)
		case report.Completed+report.Withdrawn > 0:
			l.config.Logger.InfoContext(ctx, "ledger: recovery", "report", report)
		}
		if err == nil && report.Unhandled != unhandled {
			unhandled = report.Unhandled
			l.config.Logger.WarnContext(ctx, "ledger: runs in progress are of operations without a handler in this process", "runs", unhandled)
		}
		pause(ctx, l.config.RecoverEvery)
	}
	return nil
}

// pace spaces the recoveries of runs that stop again and again. It is kept in
// memory only: after a restart everything is tried at once.
type pace struct {
	every time.Duration
	mu    sync.Mutex
	due   map[reprise.IntentID]time.Time
	seen  map[reprise.IntentID]bool
}

// begin starts a pass, and end forgets the runs that it did not meet.
func (p *pace) begin() {
	if p != nil {
		p.seen = make(map[reprise.IntentID]bool)
	}
}

func (p *pace) end() {
	if p == nil {
		return
	}
	for id := range p.due {
		if !p.seen[id] {
			delete(p.due, id)
		}
	}
}

// ready reports whether it is time to drive the run.
func (p *pace) ready(id reprise.IntentID) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[id] = true
	return !time.Now().Before(p.due[id])
}

func (p *pace) postpone(id reprise.IntentID, drives int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due[id] = time.Now().Add(spaced(max(drives, 1)-1, p.every, recoverLimit))
}

func (l *Ledger[TTx]) recoverPass(ctx context.Context, p *pace) (RecoveryReport, error) {
	var (
		report RecoveryReport
		mu     sync.Mutex
		wg     sync.WaitGroup
		free   = make(chan struct{}, recoverParallel)
		after  reprise.IntentID
	)
	p.begin()
	defer wg.Wait()
	for {
		page, err := l.driver.Lapsed(ctx, after, recoverPage)
		if err != nil {
			wg.Wait()
			return report, err
		}
		for _, e := range page {
			after = e.ID
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				wg.Wait()
				return report, ctx.Err()
			}
			wg.Go(func() {
				defer func() { <-free }()
				count := l.recoverRun(ctx, e, p)
				mu.Lock()
				defer mu.Unlock()
				report.Found++
				*count(&report)++
			})
		}
		if len(page) < recoverPage {
			wg.Wait()
			p.end()
			return report, nil
		}
	}
}

// recoverRun takes one run over and drives it on. It returns the field of the
// report under which it counts.
func (l *Ledger[TTx]) recoverRun(ctx context.Context, e store.Entry, p *pace) func(*RecoveryReport) *int {
	l.mu.RLock()
	s := l.staged[e.Intent.Operation]
	l.mu.RUnlock()
	if s == nil {
		return func(r *RecoveryReport) *int { return &r.Unhandled }
	}
	if !p.ready(e.ID) {
		return func(r *RecoveryReport) *int { return &r.Pending }
	}
	owned, err := l.driver.Takeover(ctx, e.ID, l.config.Lease)
	if errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrBusy) {
		// Somebody else has it, or has it in hand at this moment.
		return func(r *RecoveryReport) *int { return &r.Lost }
	}
	var v verdict
	if err == nil {
		v, err = s.driveSafely(ctx, owned)
	}
	switch {
	case err == nil && v.entry.State == "":
		return func(r *RecoveryReport) *int { return &r.Withdrawn }
	case err == nil:
		l.counts.recovered.Add(1)
		return func(r *RecoveryReport) *int { return &r.Completed }
	case errors.Is(err, reprise.ErrInProgress):
		return func(r *RecoveryReport) *int { return &r.Lost }
	}
	p.postpone(e.ID, owned.Drives)
	l.config.Logger.WarnContext(ctx, "ledger: a run stays in progress",
		"operation", string(e.Intent.Operation), "intent", e.ID.String(), "drives", owned.Drives, "error", err)
	return func(r *RecoveryReport) *int { return &r.Pending }
}

// driveSafely drives a run that has no caller to whom a panic could go on.
func (s *Staged[TTx]) driveSafely(ctx context.Context, e store.Entry) (v verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = verdict{}, outcomeUnknown("ledger.Recover", fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack()))
		}
	}()
	return s.drive(ctx, e)
}
