// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// Ledger recognises intents and executes each one once. TTx is the transaction
// type of the user's database library, such as *sql.Tx. It is safe for
// concurrent use.
type Ledger[TTx any] struct {
	driver  store.Driver[TTx]
	config  Config
	headers map[string]bool
	flights flights
	cache   *cache
	counts  counts

	mu     sync.RWMutex
	staged map[reprise.Operation]*Staged[TTx]
}

// New returns a ledger on a driver. c may be nil. It fails if c promises what
// can't be kept.
func New[TTx any](d store.Driver[TTx], c *Config) (*Ledger[TTx], error) {
	if d == nil {
		return nil, errors.New("ledger: no driver; open one, for example with sqlite.Open")
	}
	config, err := c.complete()
	if err != nil {
		return nil, err
	}
	return &Ledger[TTx]{
		driver:  d,
		config:  config,
		headers: headerNames(config.Headers),
		cache:   newCache(config),
		staged:  make(map[reprise.Operation]*Staged[TTx]),
	}, nil
}

// Answer is the final answer to an intent: a stored result, the same on every
// repeat, or a refusal that is not stored.
type Answer struct {
	// Result is the caller's own: it shares no memory with the store or with
	// other callers.
	Result reprise.Result
	// Replayed is true when the result was made by an earlier or another attempt.
	Replayed bool
	// ExpiresAt is when the stored body goes. It is zero when none is stored.
	ExpiresAt time.Time
}

// Work does the business of an intent inside the transaction that also keeps
// its record. It may be called several times for one intent, each time in a new
// transaction after the one before was rolled back, so it must have no effect
// outside tx. A store whose claim rides with the first statement, to save a round
// trip, calls it for a repeat too: that statement then fails, and whatever work
// returns is replaced by the answer on record.
//
// It must not end tx: returning nil commits and returning an error rolls back.
// Don't write the usual "defer tx.Rollback()" either, which runs before the
// return counts: work that returns nil after it failed, as CodeInternal, with
// nothing kept (rule L10). Beside an error that work returns it does no harm.
//
// A result of status 200 to 499 is stored and is the answer from then on, except
// 401, 403, 408, 412, 425, 428 and 429: those, and 5xx, roll back and are
// answered without being stored (rule L14). An error rolls back too; see
// [Refuse] for an error that is an answer.
type Work[TTx any] func(ctx context.Context, tx TTx) (reprise.Result, error)

// Do executes an intent in the atomic mode, or returns the result it had.
//
// A known intent is answered with its stored result, an unknown one is executed:
// the claim, what work writes, the events it enqueues and its result are
// committed together or not at all (rules L1 to L3). A repeat that meets an
// attempt in progress waits for it, at most o.Wait.
//
// From the first look at the store on, the work no longer ends with ctx: a
// client that leaves doesn't cancel it, Config.WorkTimeout does (rule L13). The
// context that work receives keeps ctx's values. A panic of work rolls back and
// goes on to the caller.
//
// Errors are *reprise.Error: CodeKeyReused, CodeInProgress, CodeKeyExpired,
// CodeKeyInvalid, CodeOutcomeUnknown and CodeStoreUnavailable, with what is known
// of the outcome. An *reprise.Error of work is returned as it is, with
// NotProcessed as its outcome if it named none, because the rollback proves it;
// any other error of work is wrapped as CodeInternal.
func (l *Ledger[TTx]) Do(ctx context.Context, in reprise.Intent, o Options, work Work[TTx]) (Answer, error) {
	return l.serve(ctx, in, o, func(t terms, deadline time.Time, s *seat) (verdict, error) {
		return l.lead(ctx, in, t, deadline, s, work)
	})
}

// verdict is what the leader of an intent established.
type verdict struct {
	// entry is the record that answers the intent. Its State is empty when there
	// is none, because the work was refused.
	entry store.Entry
	// made is the result that this attempt made itself, stored or refused; nil when
	// entry was made by another one.
	made *reprise.Result
}

// Check reports whether the ledger can keep the promises of an operation, so
// that a server refuses them at its start and not for each request.
func (l *Ledger[TTx]) Check(o Options) error {
	_, err := l.config.terms(o)
	return err
}

// serve is what both modes have in common: it admits the intent, makes one
// caller lead, and answers everybody from what the leader established.
func (l *Ledger[TTx]) serve(ctx context.Context, in reprise.Intent, o Options,
	lead func(terms, time.Time, *seat) (verdict, error),
) (a Answer, err error) {
	refused := false
	defer func() { l.observe(ctx, in, a, refused, err) }()
	t, err := l.config.terms(o)
	if err != nil {
		return Answer{}, internal("ledger.Do", err)
	}
	if err := in.Validate(); err != nil {
		return Answer{}, rolledBack("ledger.Do", err)
	}
	if ctx.Err() != nil {
		return Answer{}, gone(ctx)
	}
	deadline := time.Now().Add(t.Wait)
	if e, known, err := l.gate(ctx, in, t); known || err != nil {
		return l.answer(in, t, verdict{entry: e}, err)
	}
	if e, ok := l.cache.get(in); ok {
		l.counts.cached.Add(1)
		return l.answer(in, t, verdict{entry: e}, nil)
	}
	s, e, err := l.flights.join(ctx, in, deadline)
	if s == nil {
		return l.answer(in, t, verdict{entry: e}, err)
	}
	// Also when the leader panics, so that somebody who waits goes on.
	defer s.leave()
	v, err := lead(t, deadline, s)
	refused = err == nil && v.entry.State == ""
	if err == nil && !refused && v.entry.State != reprise.StateInProgress {
		l.cache.put(v.entry)
		s.settle(v.entry)
	}
	return l.answer(in, t, v, err)
}

// gate refuses a UUIDv7 key that is minted in the future, or so long ago that
// its record may have been purged (rules K8 and L9). A record that exists
// answers whatever the age of its key, so it is looked up first; most keys are
// neither and cost nothing here.
func (l *Ledger[TTx]) gate(ctx context.Context, in reprise.Intent, t terms) (e store.Entry, known bool, err error) {
	minted, ok := in.Key.MintedAt()
	if !ok {
		return e, false, nil
	}
	age := l.config.Now().Sub(minted)
	if age <= t.Tombstone && age >= -l.config.KeyFuture {
		return e, false, nil
	}
	e, err = l.driver.Find(ctx, in)
	switch {
	case err == nil:
		// A run in progress may be waiting for exactly this attempt.
		return e, e.State != reprise.StateInProgress, nil
	case !errors.Is(err, store.ErrNotFound):
		return e, false, storeUnavailable("ledger.Do", err)
	case age > 0:
		return e, false, keyExpired("")
	}
	return e, false, &reprise.Error{
		Code: reprise.CodeKeyInvalid, Op: "ledger.Do", Outcome: reprise.NotProcessed,
		Detail: "this key was minted in the future; correct the clock that makes the keys",
	}
}

// answer is the one place where a record becomes an answer.
func (l *Ledger[TTx]) answer(in reprise.Intent, t terms, v verdict, err error) (Answer, error) {
	switch e := v.entry; {
	case err != nil:
		return Answer{}, err
	case v.made != nil && e.State == reprise.StateTombstone:
		return Answer{Result: *v.made}, nil // Over MaxBody: answered, not kept.
	case v.made != nil:
		return Answer{Result: *v.made, ExpiresAt: e.ExpiresAt}, nil
	case l.outlived(in, t, e):
		return Answer{}, keyExpired("")
	case e.Intent.Fingerprint != in.Fingerprint:
		return Answer{}, mismatch(e.Intent.Fingerprint, in.Fingerprint)
	case e.State == reprise.StateCompleted:
		return Answer{Result: e.Result, Replayed: true, ExpiresAt: e.ExpiresAt}, nil
	case e.State == reprise.StateTombstone:
		return Answer{}, keyExpired(e.Result.Reference)
	case e.State == reprise.StateInProgress:
		return Answer{}, inProgress(nil)
	default:
		// Unsettled, or a state of a later version.
		return Answer{}, outcomeUnknown("ledger.Do", nil)
	}
}

// outlived reports whether e is kept only so that clocks may differ: its
// tombstone has ended, and the age of its key refuses the intent, whatever it
// asks for (rule L9).
func (l *Ledger[TTx]) outlived(in reprise.Intent, t terms, e store.Entry) bool {
	_, timed := in.Key.MintedAt()
	return timed && e.State == reprise.StateTombstone && !l.config.Now().Before(e.TombstoneUntil.Add(-l.allowance(t)))
}
