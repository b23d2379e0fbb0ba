// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// record commits a step, together with what fn writes. fn may be nil.
func (r *Run[TTx]) record(ctx context.Context, step store.Step, fn func(ctx context.Context, tx TTx) error) error {
	err := r.phase(ctx, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
		if fn != nil {
			if err := fn(ctx, tx); err != nil {
				return store.PhaseWrites{}, err
			}
		}
		return store.PhaseWrites{Step: &step}, nil
	}, &step)
	if err == nil {
		r.steps[step.Name] = step
	}
	return err
}

// phase commits one phase of the run, with its re-runs. step is what it records,
// nil when it completes the run; it is how a commit without an answer is
// recognised.
//
// An error of work is returned as it is, and leaves the drive able to go on; any
// other ends the drive.
func (r *Run[TTx]) phase(ctx context.Context, work func(ctx context.Context, tx TTx) (store.PhaseWrites, error), step *store.Step) error {
	l := r.ledger
	var failed error
	err := l.rerun(ctx, "ledger.Run", func() (next, error) {
		failed = nil
		ran := false
		err := l.driver.Phase(ctx, r.owner, l.config.Lease, func(ctx context.Context, tx TTx) (w store.PhaseWrites, err error) {
			ran = true
			w, failed = work(ctx, tx)
			return w, failed
		})
		switch {
		case err == nil:
			return stop, nil
		case errors.Is(err, store.ErrConflict):
			return lost(ran), err
		case failed != nil:
			return stop, failed
		case errors.Is(err, store.ErrLeaseLost):
			return stop, leaseLost(err)
		case errors.Is(err, store.ErrCommitUnknown):
			return r.resolve(ctx, step)
		case !ran || errors.Is(err, store.ErrUnavailable):
			return stop, storeUnavailable("ledger.Run", err)
		}
		return stop, internal("ledger.Run", err)
	})
	if err != nil && failed == nil {
		return r.end(err)
	}
	return err
}

// resolve establishes what became of a phase whose COMMIT was not answered. The
// look behind the lock comes first: after it, nothing of the phase can appear.
func (r *Run[TTx]) resolve(ctx context.Context, step *store.Step) (next, error) {
	e, err := r.ledger.resolve(ctx, r.intent)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return stop, leaseLost(err)
	case err != nil:
		return stop, outcomeUnknown("ledger.Run", err)
	case step == nil && (e.State == reprise.StateCompleted || e.State == reprise.StateTombstone):
		// Completed is final (rule S5), whoever did it: this drive, or a successor
		// that went on from the same steps.
		r.final = &verdict{entry: e}
		return stop, nil
	case e.State != reprise.StateInProgress || e.Epoch != r.owner.Epoch:
		return stop, leaseLost(nil)
	case step == nil:
		return again, store.ErrCommitUnknown
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	steps, err := r.ledger.driver.Steps(ctx, r.owner.ID)
	if err != nil {
		return stop, outcomeUnknown("ledger.Run", err)
	}
	for _, s := range steps {
		if s.Name == step.Name && s.State == step.State {
			return stop, nil
		}
	}
	return again, store.ErrCommitUnknown
}
