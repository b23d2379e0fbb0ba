// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
)

// Handler does the business of a staged operation. It is called again, from the
// start, whenever an earlier drive of the run stopped on its way: steps that are
// on record are not made a second time, and what it decides must follow from
// run.Input and those steps alone.
//
// It ends with run.Finish, or with the error that stopped it. After any error
// but a [Refusal] the run stays in progress and is driven again, because what it
// did may have had an effect (rule S7).
type Handler[TTx any] func(ctx context.Context, run *Run[TTx]) error

// Staged is one operation in the staged mode. It is safe for concurrent use.
type Staged[TTx any] struct {
	ledger    *Ledger[TTx]
	operation reprise.Operation
	handle    Handler[TTx]
}

// NewStaged declares a staged operation and registers its handler for recovery.
// An operation has one handler in a ledger.
func NewStaged[TTx any](l *Ledger[TTx], op reprise.Operation, h Handler[TTx]) (*Staged[TTx], error) {
	switch {
	case l == nil:
		return nil, errors.New("ledger: a staged operation needs a ledger")
	case op == "":
		return nil, errors.New("ledger: a staged operation needs a name")
	case h == nil:
		return nil, fmt.Errorf("ledger: the staged operation %q has no handler", op)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.staged[op] != nil {
		return nil, fmt.Errorf("ledger: the staged operation %q has a handler already", op)
	}
	s := &Staged[TTx]{ledger: l, operation: op, handle: h}
	l.staged[op] = s
	return s, nil
}

// Operation returns the name under which s was declared.
func (s *Staged[TTx]) Operation() reprise.Operation { return s.operation }

// Do executes an intent in the staged mode, or returns the result it had.
//
// The claim, with input, commits before the handler is called, and names its
// owner by an epoch; the lease on it is renewed as long as the handler works
// (rules S1 to S3). input is what a later process needs to go on without the
// client; it is frozen with the claim.
//
// A repeat that meets a run in progress waits for it, at most o.Wait, and takes
// it over if nobody is at work on it. A run that stopped without a result is
// CodeOutcomeUnknown: the same key drives it on, and so does recovery. Other
// errors are those of Ledger.Do.
func (s *Staged[TTx]) Do(ctx context.Context, in reprise.Intent, o Options, input []byte) (Answer, error) {
	if in.Operation != s.operation {
		return Answer{}, internal("ledger.Do", fmt.Errorf("the intent is of operation %q and was given to %q", in.Operation, s.operation))
	}
	return s.ledger.serve(ctx, in, o, func(t terms, deadline time.Time, seat *seat) (verdict, error) {
		v, err := s.lead(ctx, in, t, deadline, seat, input)
		if errors.Is(err, reprise.ErrOutcomeUnknown) {
			// Those who wait would send the same call to the same troubled system,
			// one after the other. They are told what this attempt is told.
			seat.fail(err)
		}
		return v, err
	})
}

// lead claims the intent, or waits for whoever holds it, and drives the run.
func (s *Staged[TTx]) lead(ctx context.Context, in reprise.Intent, t terms, deadline time.Time, seat *seat, input []byte) (verdict, error) {
	frozen := seal(t, input)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return verdict{}, gone(ctx)
		}
		e, owned, busy, err := s.ledger.begin(ctx, in, t.Number, frozen)
		switch {
		case busy:
		case err != nil:
			return verdict{}, err
		case owned:
			seat.bind()
			return s.drive(context.WithoutCancel(ctx), e)
		case e.State != reprise.StateInProgress || e.Intent.Fingerprint != in.Fingerprint:
			return verdict{entry: e}, nil
		}
		if !pauseUntil(ctx, deadline, spaced(n, pollBase, pollLimit)) {
			return verdict{}, inProgress(err)
		}
	}
}

// begin commits the claim of a run (rule S1).
func (l *Ledger[TTx]) begin(ctx context.Context, in reprise.Intent, number int, input []byte) (e store.Entry, owned, busy bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.WorkTimeout)
	defer cancel()
	err = l.rerun(ctx, "ledger.Do", func() (_ next, err error) {
		c := store.Claim{Intent: in, Token: store.NewToken(), Number: number}
		e, owned, err = l.driver.Begin(ctx, c, input, l.config.Lease)
		switch {
		case err == nil:
			return stop, nil
		case errors.Is(err, store.ErrBusy):
			busy = true
			return stop, err
		case errors.Is(err, store.ErrConflict):
			return unstarted, err
		case errors.Is(err, store.ErrCommitUnknown):
			e, err = l.resolve(ctx, in)
			if errors.Is(err, store.ErrNotFound) {
				return again, err
			}
			if err != nil {
				return stop, outcomeUnknown("ledger.Do", err)
			}
			// A claim with this attempt's token is this attempt's, whatever became
			// of the answer.
			owned = e.State == reprise.StateInProgress && e.Token == c.Token
			return stop, nil
		}
		return stop, storeUnavailable("ledger.Do", err)
	})
	return e, owned, busy, err
}

// drive runs the handler once over a run that this process owns, and says what
// came of it. It never says that the intent failed.
func (s *Staged[TTx]) drive(ctx context.Context, e store.Entry) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, s.ledger.config.WorkTimeout)
	defer cancel()
	failpoint.Hit("ledger/claimed")
	r, ctx := s.ledger.open(ctx, e)
	// Also when the handler panics: the lease is given up, and the next attempt
	// goes on at once.
	defer r.close(ctx)
	if err := r.load(ctx, e.Input); err != nil {
		return verdict{}, outcomeUnknown("ledger.Do", err)
	}
	err := s.handle(ctx, r)
	r.over()
	return r.conclude(ctx, err)
}

// conclude says what a drive came to, from what is on record and not from what
// its handler says.
func (r *Run[TTx]) conclude(ctx context.Context, err error) (verdict, error) {
	l := r.ledger
	refusal, refused := errors.AsType[*Refusal](err)
	switch {
	case r.final != nil:
		if err != nil {
			l.config.Logger.WarnContext(ctx, "ledger: a handler returned an error after its run was completed",
				"operation", string(r.intent.Operation), "intent", r.intent.ID().String(), "error", err)
		}
		return *r.final, nil
	case r.lost():
		return r.successor(ctx, err)
	case refused && len(r.steps) == 0:
		return r.withdraw(ctx, refusal)
	case err == nil:
		err = errors.New("the handler returned without finishing its run")
	case refused:
		err = fmt.Errorf("a run that has a step on record can't be withdrawn; finish it with a result instead: %w", err)
	}
	return verdict{}, outcomeUnknown("ledger.Do", err)
}

// successor answers for a run that another worker took over: with its result if
// it has one already.
func (r *Run[TTx]) successor(ctx context.Context, cause error) (verdict, error) {
	r.ledger.counts.leasesLost.Add(1)
	ctx, cancel := detached(ctx)
	defer cancel()
	e, err := r.ledger.driver.Find(ctx, r.intent)
	if err != nil || e.State == reprise.StateInProgress {
		return verdict{}, inProgress(errors.Join(cause, err))
	}
	return verdict{entry: e}, nil
}

// withdraw takes the claim of a refused run back, so that nobody executes later
// what the caller is told now was refused.
func (r *Run[TTx]) withdraw(ctx context.Context, refusal *Refusal) (verdict, error) {
	result, err := r.ledger.freeze(refusal.Result)
	if err != nil {
		return verdict{}, outcomeUnknown("ledger.Do", err)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	err = r.ledger.rerun(ctx, "ledger.Do", func() (next, error) {
		err := r.ledger.driver.Withdraw(ctx, r.owner)
		if errors.Is(err, store.ErrConflict) {
			return unstarted, err
		}
		return stop, err
	})
	if errors.Is(err, store.ErrCommitUnknown) {
		if _, rerr := r.ledger.resolve(ctx, r.intent); errors.Is(rerr, store.ErrNotFound) {
			err = nil
		}
	}
	switch {
	case errors.Is(err, store.ErrLeaseLost):
		return r.successor(ctx, err)
	case err != nil:
		return verdict{}, outcomeUnknown("ledger.Do", err)
	}
	r.released = true
	return verdict{made: &result}, nil
}
