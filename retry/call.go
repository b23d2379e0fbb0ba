// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
)

// Call follows one call over its attempts. It decides and it waits; making the
// attempts is its user's part:
//
//	call.Start(ctx, policy, safety, key)
//	for {
//		attempt, err := call.Begin(ctx)
//		... // Give up if err is not nil; else make the attempt, and judge it.
//		decision := call.End(ctx, verdict)
//		... // Done if it succeeded; give up if it is not to be retried.
//		err = call.Wait(ctx, decision)
//	}
//
// The context is the same for all of them. A Call belongs to one goroutine at a
// time, and is small, so that it can be a part of something larger.
type Call struct {
	policy   *Policy
	key      reprise.Key
	deadline time.Time // The zero Time when there is none.

	past []reprise.Attempt // Those after which there was another.
	last record            // The one that has begun, if there is one.
	plan *plan             // Before which attempt it stands, and how the call ended. Nil at first.

	counted int32 // Attempts that count against MaxAttempts.
	safe    bool  // The operation has no effects.
	resend  bool  // It may be sent again when its effect is unknown.
	unknown bool  // Some attempt may have had its effect (rule C2).
	settled bool  // The last verdict overrules that.
}

// record is what is kept of an attempt until there is another.
type record struct {
	start      time.Time
	took, left time.Duration
	err        error
	status     int32
	sends      int32
	outcome    reprise.Outcome
	reused     bool
	begun      bool // There is an attempt,
	ended      bool // and it has ended.
}

// plan is why there is an attempt, or why there is none.
type plan struct {
	wait    time.Duration
	trigger string
	reason  Reason
	retryAt time.Time
	cause   error
}

// Start begins a call under p, in place: c must be the zero Call. safety says
// what may be done when an attempt's effect is Unknown, as Options.Safety does
// for Do; key is for the records, and may be empty. The deadline is counted from
// now.
func (c *Call) Start(ctx context.Context, p *Policy, safety contract.Safety, key reprise.Key) {
	c.policy = p.orDefault()
	c.key = key
	c.SetSafety(safety)
	if d := c.policy.o.Deadline; d > 0 {
		c.deadline = time.Now().Add(d)
	}
	if d, ok := ctx.Deadline(); ok && (c.deadline.IsZero() || d.Before(c.deadline)) {
		c.deadline = d
	}
}

// SetSafety changes what may be done from now on. A transport may learn during a
// call that the other side keeps a ledger.
func (c *Call) SetSafety(safety contract.Safety) {
	c.safe = safety == contract.Safe
	c.resend = c.safe || safety == contract.Idempotent || safety == contract.Keyed
}

// Key returns the key of the call.
func (c *Call) Key() reprise.Key { return c.key }

// Begin starts an attempt, and returns its record as far as it goes.
//
// It fails with an *Error when the context has ended or the deadline has passed,
// so that nothing more is sent after a long suspension.
func (c *Call) Begin(ctx context.Context) (reprise.Attempt, error) {
	now := time.Now()
	if reason, cause := c.expired(ctx, now); reason != "" {
		return reprise.Attempt{}, c.Stop(reason, cause)
	}
	c.last = record{start: now, begun: true}
	return c.attempt(), nil
}

// attempt writes last as it is told to others.
func (c *Call) attempt() reprise.Attempt {
	a := reprise.Attempt{
		Number: len(c.past) + 1, Key: c.key, Start: c.last.start, Trigger: "first",
		Sends: int(c.last.sends), Reused: c.last.reused, Status: int(c.last.status),
		Outcome: c.last.outcome, Remaining: c.last.left, Err: c.last.err,
	}
	if c.last.ended {
		a.End = a.Start.Add(c.last.took)
	}
	if c.plan != nil {
		a.Wait, a.Trigger = c.plan.wait, c.plan.trigger
	}
	return a
}

// Limit returns when the attempt that has begun must end: after AttemptTimeout or
// at the deadline. ok is false when nothing but the context ends it.
func (c *Call) Limit(ctx context.Context) (limit time.Time, ok bool) {
	limit = c.limit()
	if limit.IsZero() {
		return limit, false
	}
	if d, has := ctx.Deadline(); has && !limit.Before(d) {
		return limit, false
	}
	return limit, true
}

func (c *Call) limit() (limit time.Time) {
	if d := c.policy.o.AttemptTimeout; d > 0 {
		limit = c.last.start.Add(d)
	}
	if !c.deadline.IsZero() && (limit.IsZero() || c.deadline.Before(limit)) {
		limit = c.deadline
	}
	return limit
}

// Timeout returns the error of an attempt that has reached its Limit. It matches
// context.DeadlineExceeded.
func (c *Call) Timeout() error {
	if !c.limit().Equal(c.deadline) {
		return &timeoutError{"the attempt took longer than AttemptTimeout, " + c.policy.o.AttemptTimeout.String()}
	}
	return &timeoutError{"the attempt ran into the call's deadline"}
}

type timeoutError struct{ text string }

func (e *timeoutError) Error() string        { return e.text }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Decision is what to do after an attempt.
type Decision struct {
	// Retry means: Wait, then make another attempt.
	Retry bool
	// Wait is how long.
	Wait time.Duration
	// Reason is why there is no retry.
	Reason Reason
	// RetryAt is the earliest moment that the other side asked for; the zero Time
	// if it asked for none.
	RetryAt time.Time
}

// End closes the record of the attempt and decides (rules C2, C5 to C9). When it
// decides against a retry, Failure says why.
func (c *Call) End(ctx context.Context, v Verdict) Decision {
	now := time.Now()
	c.note(v, now)
	a := c.attempt()
	if c.policy.o.OnAttempt != nil {
		c.policy.o.OnAttempt(a)
	}
	if v.Outcome == reprise.Succeeded {
		return Decision{Reason: ReasonFinal}
	}
	d, cause := c.decide(ctx, v, now)
	if d.Retry {
		c.past, c.last = append(c.past, a), record{}
		c.plan = &plan{wait: d.Wait, trigger: v.Trigger, retryAt: d.RetryAt}
	} else {
		c.plan = &plan{wait: a.Wait, trigger: a.Trigger, reason: d.Reason, retryAt: d.RetryAt, cause: cause}
	}
	return d
}

// note completes the record.
func (c *Call) note(v Verdict, now time.Time) {
	r := &c.last
	r.took, r.ended = now.Sub(r.start), true
	r.outcome, r.err, r.reused = v.Outcome, v.Err, v.Reused
	r.status, r.sends = int32(v.Status), int32(v.Sends)
	if !c.deadline.IsZero() {
		r.left = max(0, c.deadline.Sub(now))
	}
	// Without a deadline nothing else would bound the waiting.
	if !v.InProgress || c.deadline.IsZero() {
		c.counted++
	}
	// An operation without effects has none that could be unknown.
	c.settled = v.Settled || v.Outcome == reprise.Succeeded || c.safe && v.Outcome == reprise.Rejected
	c.unknown = c.unknown || v.Outcome == reprise.Unknown
}

func (c *Call) decide(ctx context.Context, v Verdict, now time.Time) (d Decision, cause error) {
	if v.After > 0 {
		d.RetryAt = now.Add(min(v.After, math.MaxInt64/2)) // Centuries are far enough.
	}
	if v.Outcome == reprise.Rejected || v.Final {
		d.Reason = ReasonFinal
		return d, nil
	}
	// The context's own end comes before any look at the error that it may have
	// caused. A deadline that is near is for delay to see.
	if d.Reason, cause = ended(ctx); d.Reason != "" {
		return d, cause
	}
	switch {
	case v.Outcome != reprise.NotProcessed && !v.InProgress && !c.resend: // Rule C8.
		d.Reason = ReasonInDoubt
	case int(c.counted) >= c.policy.o.MaxAttempts:
		d.Reason = ReasonAttempts
	default:
		d.Wait, d.Reason = c.delay(v, now)
		d.Retry = d.Reason == ""
	}
	return d, nil
}

// delay chooses the wait. least is what it must be at least, and above that a
// random part keeps clients from coming back together: it is the backoff's own
// when nothing was asked, and not less than a quarter of what was asked, within
// 1 s and Cap, because Retry-After gives the same second to everybody (rule C6).
// The random part is cut to what fits the deadline; least is not, and when it
// does not fit there is no use in waiting (rule C5).
func (c *Call) delay(v Verdict, now time.Time) (time.Duration, Reason) {
	o := &c.policy.o
	least, spread := v.After, Backoff{o.Base, o.Cap}.Ceiling(len(c.past))
	if v.InProgress {
		least = max(least, o.Base) // Whoever asks again at once finds it still at work.
	}
	if v.After > 0 {
		spread = max(spread, min(max(v.After/4, time.Second), o.Cap))
	}
	if !c.deadline.IsZero() {
		room := c.deadline.Sub(now) - o.MinAttempt - least
		if room < 0 {
			return 0, ReasonDeadline
		}
		spread = min(spread, room)
	}
	if least > o.MaxWait {
		return 0, ReasonMaxWait
	}
	return least + min(scale(spread, o.Rand()), math.MaxInt64-least), ""
}

// Wait sleeps as d says. It fails with an *Error when the context ends first.
func (c *Call) Wait(ctx context.Context, d Decision) error {
	t := time.NewTimer(d.Wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		reason, cause := ended(ctx)
		return c.Stop(reason, cause)
	}
}

// ended says whether ctx has ended, and how.
func ended(ctx context.Context) (Reason, error) {
	switch err := ctx.Err(); {
	case err == nil:
		return "", nil
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonDeadline, context.Cause(ctx)
	default:
		return ReasonCancelled, context.Cause(ctx)
	}
}

// expired says whether no attempt may begin at now. The first one may as long as
// there is any time left: it might be fast.
func (c *Call) expired(ctx context.Context, now time.Time) (Reason, error) {
	if reason, cause := ended(ctx); reason != "" || c.deadline.IsZero() {
		return reason, cause
	}
	need := time.Nanosecond
	if len(c.past) > 0 {
		need = c.policy.o.MinAttempt
	}
	if c.deadline.Sub(now) < need {
		return ReasonDeadline, nil
	}
	return "", nil
}

// Outcome is what all attempts together prove (rule C2). A call without attempts
// is NotProcessed.
func (c *Call) Outcome() reprise.Outcome {
	switch {
	case c.unknown && !c.settled:
		return reprise.Unknown
	case c.last.begun:
		return c.last.outcome
	case len(c.past) > 0:
		return c.past[len(c.past)-1].Outcome
	default:
		return reprise.NotProcessed
	}
}

// Attempts returns the records so far (rule C9), in a slice of its own.
func (c *Call) Attempts() []reprise.Attempt {
	all := make([]reprise.Attempt, len(c.past), len(c.past)+1)
	copy(all, c.past)
	if c.last.begun {
		all = append(all, c.attempt())
	}
	return all
}

// Failure returns why the call ended without success, after an End that decided
// against a retry.
func (c *Call) Failure() *Error {
	if c.plan == nil {
		return c.Stop(ReasonFinal, nil)
	}
	return c.Stop(c.plan.reason, c.plan.cause)
}

// Stop ends the call for a reason that its user found, such as a request body
// that can't be sent again. cause may be nil.
func (c *Call) Stop(reason Reason, cause error) *Error {
	e := &Error{Reason: reason, Outcome: c.Outcome(), Attempts: c.Attempts(), cause: cause}
	if c.plan != nil {
		e.RetryAt = c.plan.retryAt
	}
	if n := len(e.Attempts); n > 0 {
		e.Err = e.Attempts[n-1].Err
	}
	if reason == ReasonDeadline {
		e.limit = context.DeadlineExceeded
	}
	if reason == ReasonCancelled {
		e.limit = context.Canceled
	}
	return e
}
