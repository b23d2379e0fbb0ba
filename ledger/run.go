// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
)

// Run is one drive of one staged intent by its owner. It belongs to the
// goroutine of its handler and to the time of the handler's call.
type Run[TTx any] struct {
	ledger *Ledger[TTx]
	intent reprise.Intent
	input  []byte
	terms  terms
	drives int
	owner  store.Ownership
	steps  map[string]store.Step

	// alive ends with the drive; its cause is CodeLeaseLost if the lease was lost.
	alive context.Context
	stop  func()
	// step is held from the begin of a step to its end: steps follow each other,
	// and none outlives the drive.
	step sync.Mutex
	// stuck is the error that ended this drive: after it nothing more is done.
	stuck error
	// final is set when the run is completed, by whoever completed it.
	final *verdict
	// released says that there is no lease to give up any more.
	released bool
}

var (
	errLeaseLost = leaseLost(nil)
	errOver      = internal("ledger.Run", errors.New("the handler of this drive has returned"))
)

// settleTimeout bounds what a drive writes after its own time is over: the
// evidence of a call that was answered, or the return of its lease.
const settleTimeout = 5 * time.Second

// open begins a drive of a run that this process owns, and keeps its lease. The
// context is the drive's.
func (l *Ledger[TTx]) open(ctx context.Context, e store.Entry) (*Run[TTx], context.Context) {
	r := &Run[TTx]{
		ledger: l, intent: e.Intent, drives: e.Drives,
		owner: store.Ownership{ID: e.ID, Epoch: e.Epoch},
		steps: make(map[string]store.Step),
	}
	return r, r.keepLease(ctx)
}

// load reads what earlier drives left.
func (r *Run[TTx]) load(ctx context.Context, sealed []byte) (err error) {
	if r.terms, r.input, err = unseal(sealed); err != nil {
		return err
	}
	steps, err := r.ledger.driver.Steps(ctx, r.owner.ID)
	for _, s := range steps {
		r.steps[s.Name] = s
	}
	return err
}

// close ends the drive. A lease that is still held is given up, so that the next
// attempt, or recovery, goes on at once.
func (r *Run[TTx]) close(ctx context.Context) {
	r.stop()
	r.over()
	if r.final != nil || r.released || r.lost() {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := r.ledger.driver.Renew(ctx, r.owner, 0); err != nil {
		r.ledger.config.Logger.WarnContext(ctx, "ledger: a lease could not be given up and has to lapse",
			"operation", string(r.intent.Operation), "intent", r.intent.ID().String(), "error", err)
	}
}

// detached returns a context for what must be written although the drive's time
// may be over.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
}

// Intent returns what the run is for.
func (r *Run[TTx]) Intent() reprise.Intent { return r.intent }

// Input returns a copy of the input that was frozen with the claim.
func (r *Run[TTx]) Input() []byte { return bytes.Clone(r.input) }

// Drive counts how often the run was started or taken over; 1 is the first time.
func (r *Run[TTx]) Drive() int { return r.drives }

// lost reports whether another worker owns the run.
func (r *Run[TTx]) lost() bool {
	return errors.Is(context.Cause(r.alive), reprise.ErrLeaseLost) || errors.Is(r.stuck, reprise.ErrLeaseLost)
}

// end makes err the end of this drive.
func (r *Run[TTx]) end(err error) error {
	if r.stuck == nil {
		r.stuck = err
	}
	return err
}

// over lets no step begin any more, and waits for one that a goroutine of the
// handler still makes: it must not take the lease again once that is given up.
func (r *Run[TTx]) over() {
	r.step.Lock()
	defer r.step.Unlock()
	_ = r.end(errOver)
}

// enter begins a step, or reports why there can't be one. Without an error the
// caller holds r.step.
func (r *Run[TTx]) enter(ctx context.Context, name string) error {
	if !r.step.TryLock() {
		return internal("ledger.Run", fmt.Errorf("step %q begins inside the transaction of another one, or beside it; steps follow each other", name))
	}
	err := r.ready(ctx, name)
	if err != nil {
		r.step.Unlock()
	}
	return err
}

// ready reports why nothing can be done in this drive any more.
func (r *Run[TTx]) ready(ctx context.Context, name string) error {
	switch {
	case r.stuck != nil:
		return r.stuck
	case r.lost():
		return r.end(errLeaseLost)
	case r.final != nil:
		return internal("ledger.Run", fmt.Errorf("step %q comes after the run was finished", name))
	}
	return ctx.Err()
}

// Tx runs fn as one atomic phase: what it writes, the events it enqueues and the
// recovery point under name are committed together. A later drive skips a phase
// that was committed, so fn takes effect at most once in the life of the run.
//
// fn may be called several times, as [Work] may. Its error rolls the phase back
// and is returned as it is; CodeLeaseLost means that another worker owns the run.
func (r *Run[TTx]) Tx(ctx context.Context, name string, fn func(ctx context.Context, tx TTx) error) error {
	if err := r.enter(ctx, name); err != nil {
		return err
	}
	defer r.step.Unlock()
	if s, ok := r.steps[name]; ok {
		return r.sameKind(s, "")
	}
	step := store.Step{Name: name, State: store.StepDone, Outcome: reprise.Succeeded}
	return r.record(ctx, step, fn)
}

// sameKind reports a name that stands for a phase in one place of the handler
// and for a call in another.
func (r *Run[TTx]) sameKind(s store.Step, key reprise.Key) error {
	if s.Key == key {
		return nil
	}
	return r.end(internal("ledger.Run", fmt.Errorf("the name %q stands for a phase and for a call; give each step its own", s.Name)))
}

// Call makes one call to another system, under a key that is the same on every
// drive of every attempt (rule K6), with the same bytes.
//
// The key and request are committed before send is called for the first time
// (rule S4). A later drive that finds the step without its outcome calls send
// with the recorded request, and the given one is not used; a step with an
// outcome is not sent again. What send returns decides:
//
//   - nil: the call succeeded. The response is recorded and returned, now and on
//     every later drive.
//   - an *reprise.Error whose outcome is Rejected: the other system decided
//     against it. The decision is recorded, and returned now and on every later
//     drive as an error of the same code, detail and reference, together with the
//     response.
//   - anything else: nothing is known. Nothing is recorded, the error is of
//     CodeOutcomeUnknown, and this drive is over: every further step returns it,
//     so that an unknown outcome can't be finished as a failure (rule S7).
func (r *Run[TTx]) Call(ctx context.Context, name string, request []byte,
	send func(ctx context.Context, key reprise.Key, request []byte) (response []byte, err error),
) ([]byte, error) {
	if err := r.enter(ctx, name); err != nil {
		return nil, err
	}
	defer r.step.Unlock()
	key := r.intent.Derive(name)
	step, ok := r.steps[name]
	if ok {
		if err := r.sameKind(step, key); err != nil {
			return nil, err
		}
	} else {
		step = store.Step{Name: name, Key: key, State: store.StepPlanned, Request: bytes.Clone(request)}
		if err := r.record(ctx, step, nil); err != nil {
			return nil, err
		}
	}
	if step.State == store.StepDone {
		return recorded(step)
	}
	if err := r.ready(ctx, name); err != nil {
		return nil, err
	}
	failpoint.Hit("ledger/planned")
	response, err := send(ctx, step.Key, bytes.Clone(step.Request))
	failpoint.Hit("ledger/answered")
	switch e, ok := errors.AsType[*reprise.Error](err); {
	case err == nil:
		step.Outcome, step.Response = reprise.Succeeded, bytes.Clone(response)
	case ok && e.Outcome == reprise.Rejected:
		step.Outcome, step.Response = reprise.Rejected, evidence(response, e)
	default:
		return nil, r.end(outcomeUnknown("ledger.Call", err))
	}
	step.State = store.StepDone
	// The answer is here; that the drive's time is over doesn't make it unknown.
	wctx, cancel := detached(ctx)
	defer cancel()
	if err := r.record(wctx, step, nil); err != nil {
		return nil, err
	}
	return recorded(step)
}

// Finish ends the run: what fn writes, the events it enqueues and its result are
// committed together, and the result is the answer to the intent from then on
// (rule S5). Its status must be one that is stored; see [Work].
//
// fn may be called several times, as [Work] may.
func (r *Run[TTx]) Finish(ctx context.Context, fn func(ctx context.Context, tx TTx) (reprise.Result, error)) (reprise.Result, error) {
	if err := r.enter(ctx, "finish"); err != nil {
		return reprise.Result{}, err
	}
	defer r.step.Unlock()
	var c store.Completion
	err := r.phase(ctx, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
		result, err := fn(ctx, tx)
		if err == nil {
			c, err = r.ledger.completion(r.intent, result, r.terms)
		}
		if err == nil && !storable(c.Result.Status) {
			err = internal("ledger.Finish", fmt.Errorf("a run can't end with status %d, which is not stored; Refuse it before the first step", c.Result.Status))
		}
		return store.PhaseWrites{Complete: &c}, err
	}, nil)
	if err != nil {
		return reprise.Result{}, err
	}
	failpoint.Hit("ledger/finished")
	switch {
	case r.final == nil:
		r.final = &verdict{entry: r.completed(ctx, c), made: &c.Result}
	case r.final.entry.Epoch == r.owner.Epoch:
		r.final.made = &c.Result
	default:
		return copyResult(r.final.entry.Result), nil
	}
	return copyResult(c.Result), nil
}

// completed returns the record of the completed run. When it can't be read, the
// completion stands in for it: the result is stored for certain.
func (r *Run[TTx]) completed(ctx context.Context, c store.Completion) store.Entry {
	ctx, cancel := detached(ctx)
	defer cancel()
	if e, err := r.ledger.driver.Find(ctx, r.intent); err == nil {
		return e
	}
	e := store.Entry{
		ID: r.owner.ID, Intent: r.intent, State: reprise.StateCompleted, Result: c.Result,
		ExpiresAt: time.Now().Add(c.Retention),
	}
	if c.OmitBody {
		e.State, e.Result.Body = reprise.StateTombstone, nil
	}
	return e
}
