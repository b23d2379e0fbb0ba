// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

const (
	// pollBase and pollLimit space the looks at an intent that another process
	// holds. The limit is what its owner's death costs the next attempt.
	pollBase, pollLimit = 2 * time.Millisecond, 50 * time.Millisecond
	// rerunBase and rerunLimit space the re-runs of a lost conflict.
	rerunBase, rerunLimit = time.Millisecond, 100 * time.Millisecond
)

// lead executes an intent on behalf of all its callers in this process.
func (l *Ledger[TTx]) lead(ctx context.Context, in reprise.Intent, t terms, deadline time.Time, s *seat, work Work[TTx]) (verdict, error) {
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return verdict{}, gone(ctx)
		}
		v, busy, err := l.execute(ctx, in, t, s, work)
		held := v.entry.State == reprise.StateInProgress && v.entry.Intent.Fingerprint == in.Fingerprint
		if !busy && !held {
			return v, err
		}
		if !pauseUntil(ctx, deadline, spaced(n, pollBase, pollLimit)) {
			return verdict{}, inProgress(err)
		}
	}
}

// pauseUntil sleeps for d, but not beyond deadline, and reports whether there is
// time left for another try.
func pauseUntil(ctx context.Context, deadline time.Time, d time.Duration) bool {
	left := time.Until(deadline)
	return left > 0 && pause(ctx, min(d, left))
}

// execute runs one execution of the atomic mode, with its re-runs, under its own
// deadline. busy is true when another process holds the intent.
func (l *Ledger[TTx]) execute(ctx context.Context, in reprise.Intent, t terms, s *seat, work Work[TTx]) (v verdict, busy bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.WorkTimeout)
	defer cancel()
	err = l.rerun(ctx, "ledger.Do", func() (next, error) {
		a := attempt[TTx]{ledger: l, work: work, lifetimes: t, in: in}
		c := store.Claim{Intent: in, Token: store.NewToken(), Number: t.Number, Held: s.bind}
		e, executed, err := l.driver.Execute(ctx, c, a.run)
		switch {
		case err == nil && !executed:
			v = verdict{entry: e}
		case err == nil:
			v = verdict{entry: e, made: &a.completion.Result}
		case errors.Is(err, store.ErrCommitUnknown) && !errors.Is(a.err, store.ErrCommitUnknown):
			// Work may have failed all the same, in a driver whose claim rides: it met a
			// record, and that record could not be confirmed.
			e, err := l.resolve(ctx, in)
			switch {
			case errors.Is(err, store.ErrNotFound):
				return again, err
			case err != nil:
				return stop, outcomeUnknown("ledger.Do", err)
			case e.Token == c.Token:
				v = verdict{entry: e, made: &a.completion.Result}
			default:
				v = verdict{entry: e}
			}
		case errors.Is(err, store.ErrBusy) && !errors.Is(a.err, store.ErrBusy):
			// Work may have been called all the same, by a driver whose claim rides.
			busy = true
			return stop, err
		default:
			if r, ok := a.refused(err); ok {
				v = verdict{made: &r}
				return stop, nil
			}
			return a.failed("ledger.Do", err)
		}
		return stop, nil
	})
	return v, busy, err
}

// next says what is to follow a transaction.
type next int

const (
	// stop: it is over, well or not.
	stop next = iota
	// again: it is certain that nothing was kept, and it may be run again.
	again
	// unstarted: the same, and the database did not even begin it.
	unstarted
)

// rerun calls try as long as it may be run again: at most MaxReruns times more
// than once, and no longer than Wait if the database is so busy that it begins
// nothing, because then every caller who waits makes it worse.
func (l *Ledger[TTx]) rerun(ctx context.Context, op string, try func() (next, error)) error {
	begin := time.Now()
	for n := 0; ; n++ {
		next, err := try()
		if next == stop {
			return err
		}
		l.counts.reruns.Add(1)
		if n == l.config.MaxReruns || next == unstarted && time.Since(begin) >= l.config.Wait ||
			!pause(ctx, spaced(n, rerunBase, rerunLimit)) {
			return storeUnavailable(op, err)
		}
	}
}

// attempt is one call of the driver with work inside it.
type attempt[TTx any] struct {
	ledger    *Ledger[TTx]
	in        reprise.Intent
	work      Work[TTx]
	lifetimes terms

	// ran says that work was called; completion and err are how its last run ended.
	ran        bool
	completion store.Completion
	err        error
}

// errNotStored rolls back the transaction of a result that is not to be stored.
var errNotStored = errors.New("ledger: the result is not stored")

// run runs work and turns its result into a completion.
func (a *attempt[TTx]) run(ctx context.Context, tx TTx) (store.Completion, error) {
	a.ran, a.completion, a.err = true, store.Completion{}, nil
	r, err := a.work(ctx, tx)
	if err == nil {
		a.completion, err = a.ledger.completion(a.in, r, a.lifetimes)
	}
	if err == nil && !storable(a.completion.Result.Status) {
		err = errNotStored
	}
	a.err = err
	return a.completion, err
}

// refused returns the answer of work that was rolled back because its answer is
// not stored. err is the driver's error.
func (a *attempt[TTx]) refused(err error) (reprise.Result, bool) {
	if a.err == nil || !errors.Is(err, a.err) || errors.Is(err, store.ErrConflict) {
		return reprise.Result{}, false
	}
	if errors.Is(a.err, errNotStored) {
		return a.completion.Result, true
	}
	refusal, ok := errors.AsType[*Refusal](a.err)
	if !ok {
		return reprise.Result{}, false
	}
	r, err := a.ledger.freeze(refusal.Result)
	return r, err == nil
}

// failed says what an error of the driver means after which nothing was kept:
// whether the attempt may run again, and what to tell the caller if not.
func (a *attempt[TTx]) failed(op string, err error) (next, error) {
	switch {
	case errors.Is(err, store.ErrConflict):
		return lost(a.ran), err
	case errors.Is(err, store.ErrTxMisuse):
		return stop, internal(op, err)
	case a.err != nil && (errors.Is(a.err, store.ErrUnavailable) || !errors.Is(err, store.ErrUnavailable)):
		return stop, rolledBack(op, a.err)
	case a.ran && !errors.Is(err, store.ErrUnavailable):
		return stop, internal(op, err)
	}
	// Work was never called, or the driver says that the store is to blame for
	// what work returned.
	return stop, storeUnavailable(op, err)
}

// lost is what follows a lost conflict.
func lost(ran bool) next {
	if ran {
		return again
	}
	return unstarted
}

// completion freezes what work returned.
func (l *Ledger[TTx]) completion(in reprise.Intent, r reprise.Result, t terms) (store.Completion, error) {
	r, err := l.freeze(r)
	if err != nil {
		return store.Completion{}, err
	}
	return store.Completion{
		Result:    r,
		OmitBody:  len(r.Body) > l.config.MaxBody,
		Retention: t.Retention,
		Tombstone: t.Tombstone + l.margin(in, t),
	}, nil
}

// margin is how much longer the record of a UUIDv7 key is kept than its tombstone
// lasts, so that there is no gap between its end, which counts from completion by
// the database's clock, and the age gate, which counts from the key's minting by
// this one: as far as the key was minted ahead of this clock, and the allowance.
func (l *Ledger[TTx]) margin(in reprise.Intent, t terms) time.Duration {
	minted, ok := in.Key.MintedAt()
	if !ok {
		return 0
	}
	return max(0, minted.Sub(l.config.Now())) + l.allowance(t)
}

// allowance is what the clocks of servers and database may differ by: KeyFuture,
// but no more than the tombstone itself, which would otherwise be the smaller
// part of what is kept.
func (l *Ledger[TTx]) allowance(t terms) time.Duration { return min(l.config.KeyFuture, t.Tombstone) }

// Once executes work without a key: in one transaction, without a record and
// without recognising repeats, under the same rules of detachment, re-running and
// storing as Do. A COMMIT whose answer is lost is CodeOutcomeUnknown, and nothing
// can find out.
func (l *Ledger[TTx]) Once(ctx context.Context, work Work[TTx]) (reprise.Result, error) {
	if ctx.Err() != nil {
		return reprise.Result{}, gone(ctx)
	}
	t, err := l.config.terms(Options{})
	if err != nil {
		return reprise.Result{}, internal("ledger.Once", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.WorkTimeout)
	defer cancel()
	var result reprise.Result
	err = l.rerun(ctx, "ledger.Once", func() (next, error) {
		a := attempt[TTx]{ledger: l, work: work, lifetimes: t}
		err := l.driver.Transact(ctx, func(ctx context.Context, tx TTx) error {
			_, err := a.run(ctx, tx)
			return err
		})
		if err == nil {
			result = a.completion.Result
			return stop, nil
		}
		if a.err == nil && errors.Is(err, store.ErrCommitUnknown) {
			return stop, &reprise.Error{
				Code: reprise.CodeOutcomeUnknown, Op: "ledger.Once", Err: err,
				Detail: "the commit was not answered, and a request without a key can't be looked up",
			}
		}
		if r, ok := a.refused(err); ok {
			result = r
			return stop, nil
		}
		return a.failed("ledger.Once", err)
	})
	return result, err
}
