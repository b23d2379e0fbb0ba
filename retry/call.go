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
//	for {
//		attempt, err := call.Begin()
//		... // Stop if err is not nil; else make the attempt.
//		decision := call.End(verdict)
//		... // Done, or Stop, or:
//		err = call.Wait(decision)
//	}
//
// A Call belongs to one goroutine at a time. Start makes it usable.
type Call struct {
	policy   *Policy
	ctx      context.Context
	safety   contract.Safety
	start    time.Time
	deadline time.Time // The zero Time when there is none.

	attempts []reprise.Attempt
	first    [1]reprise.Attempt // Most calls need one.
	waited   time.Duration      // Before the next attempt, and why.
	trigger  string
	counted  int // Attempts that count against MaxAttempts.

	unknown bool // Some attempt may have had its effect (rule C2).
	settled bool // The last verdict overrules that.

	reason  Reason // Why the call has stopped, until when, and what ended it.
	retryAt time.Time
	cause   error
}

// Start begins a call under p, in place: c must be the zero Call. safety says
// what may be done when an attempt's effect is Unknown, as Options.Safety does
// for Do. The deadline is counted from now.
func (c *Call) Start(ctx context.Context, p *Policy, safety contract.Safety) {
	c.policy = p.orDefault()
	c.ctx = ctx
	c.safety = safety
	c.start = time.Now()
	c.attempts = c.first[:0]
	c.trigger = "first"
	if d := c.policy.o.Deadline; d > 0 {
		c.deadline = c.start.Add(d)
	}
	if d, ok := ctx.Deadline(); ok && (c.deadline.IsZero() || d.Before(c.deadline)) {
		c.deadline = d
	}
}

// SetSafety changes what may be done from now on. A transport may learn during a
// call that the other side keeps a ledger.
func (c *Call) SetSafety(safety contract.Safety) { c.safety = safety }

// Begin starts an attempt, and returns its record for the user to fill in; the
// pointer is good until End. Sends is 1, for attempts that can't know better.
//
// It fails with an *Error when the call's context has ended or its deadline has
// passed, so that nothing more is sent after a long suspension.
func (c *Call) Begin() (*reprise.Attempt, error) {
	now := time.Now()
	if reason, cause := c.expired(now); reason != "" {
		return nil, c.stop(reason, cause)
	}
	c.attempts = append(c.attempts, reprise.Attempt{
		Number: len(c.attempts) + 1, Start: now, Wait: c.waited, Trigger: c.trigger, Sends: 1,
	})
	return &c.attempts[len(c.attempts)-1], nil
}

// Limit returns when the attempt that has begun must end: after AttemptTimeout or
// at the deadline. ok is false when nothing but the call's context ends it.
func (c *Call) Limit() (limit time.Time, ok bool) {
	if d := c.policy.o.AttemptTimeout; d > 0 {
		limit = c.attempts[len(c.attempts)-1].Start.Add(d)
	}
	if !c.deadline.IsZero() && (limit.IsZero() || c.deadline.Before(limit)) {
		limit = c.deadline
	}
	if limit.IsZero() {
		return limit, false
	}
	if d, has := c.ctx.Deadline(); has && !limit.Before(d) {
		return limit, false
	}
	return limit, true
}

// Timeout returns the error of an attempt that has reached its Limit. It matches
// context.DeadlineExceeded.
func (c *Call) Timeout() error {
	if limit, _ := c.Limit(); !limit.Equal(c.deadline) {
		d := c.policy.o.AttemptTimeout
		return &timeoutError{"the attempt took longer than AttemptTimeout, " + d.String()}
	}
	return &timeoutError{"the attempt ran into the call's deadline"}
}

type timeoutError struct{ text string }

func (e *timeoutError) Error() string        { return e.text }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded } //nolint:errorlint // Is compares.

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
func (c *Call) End(v Verdict) Decision {
	now := time.Now()
	c.note(v, now)
	d := c.decide(v, now)
	if d.Retry {
		c.waited, c.trigger = d.Wait, v.Trigger
	} else {
		c.reason, c.retryAt = d.Reason, d.RetryAt
	}
	return d
}

// note completes the record.
func (c *Call) note(v Verdict, now time.Time) {
	a := &c.attempts[len(c.attempts)-1]
	a.End, a.Outcome, a.Err = now, v.Outcome, v.Err
	if !c.deadline.IsZero() {
		a.Remaining = max(0, c.deadline.Sub(now))
	}
	// Without a deadline nothing else would bound the waiting.
	if !v.InProgress || c.deadline.IsZero() {
		c.counted++
	}
	// An operation without effects has none that could be unknown.
	c.settled = v.Settled || v.Outcome == reprise.Succeeded ||
		c.safety == contract.Safe && v.Outcome == reprise.Rejected
	c.unknown = c.unknown || v.Outcome == reprise.Unknown
	if c.policy.o.OnAttempt != nil {
		c.policy.o.OnAttempt(*a)
	}
}

func (c *Call) decide(v Verdict, now time.Time) (d Decision) {
	if v.After > 0 {
		d.RetryAt = now.Add(min(v.After, math.MaxInt64/2)) // Thousands of years are far enough.
	}
	if v.Outcome == reprise.Succeeded || v.Outcome == reprise.Rejected || v.Final {
		d.Reason = ReasonFinal
		return d
	}
	// The call's own end comes before any look at the error that it may have
	// caused. A deadline that is near is for plan to see.
	if d.Reason, c.cause = c.ended(); d.Reason != "" {
		return d
	}
	switch {
	case !c.mayResend(v):
		d.Reason = ReasonInDoubt
	case c.counted >= c.policy.o.MaxAttempts:
		d.Reason = ReasonAttempts
	default:
		d.Wait, d.Reason = c.plan(v, now)
		d.Retry = d.Reason == ""
	}
	return d
}

// mayResend is rule C8.
func (c *Call) mayResend(v Verdict) bool {
	if v.Outcome == reprise.NotProcessed || v.InProgress {
		return true
	}
	return c.safety == contract.Safe || c.safety == contract.Idempotent || c.safety == contract.Keyed
}

// plan chooses the wait. least is what it must be at least, and above that a
// random part keeps clients from coming back together: it is the backoff's own
// when nothing was asked, and not less than a quarter of what was asked, within
// 1 s and Cap, because Retry-After gives the same second to everybody (rule C6).
// The random part is cut to what fits the deadline; least is not, and when it
// does not fit there is no use in waiting (rule C5).
func (c *Call) plan(v Verdict, now time.Time) (time.Duration, Reason) {
	o := &c.policy.o
	least, spread := v.After, Backoff{o.Base, o.Cap}.Ceiling(len(c.attempts)-1)
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
	wait := least + min(scale(spread, o.Rand()), math.MaxInt64-least)
	return wait, ""
}

// Wait sleeps as d says. It fails with an *Error when the call's context ends
// first.
func (c *Call) Wait(d Decision) error {
	t := time.NewTimer(d.Wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		reason, cause := c.ended()
		return c.stop(reason, cause)
	}
}

// ended says whether the call's context has ended, and how.
func (c *Call) ended() (Reason, error) {
	switch err := c.ctx.Err(); {
	case err == nil:
		return "", nil
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonDeadline, context.Cause(c.ctx)
	default:
		return ReasonCancelled, context.Cause(c.ctx)
	}
}

// expired says whether no attempt may begin at now. The first one may as long as
// there is any time left: it might be fast.
func (c *Call) expired(now time.Time) (Reason, error) {
	if reason, cause := c.ended(); reason != "" || c.deadline.IsZero() {
		return reason, cause
	}
	need := time.Nanosecond
	if len(c.attempts) > 0 {
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
	if len(c.attempts) == 0 {
		return reprise.NotProcessed
	}
	if c.unknown && !c.settled {
		return reprise.Unknown
	}
	return c.attempts[len(c.attempts)-1].Outcome
}

// Attempts returns the records so far (rule C9). The slice is the call's own.
func (c *Call) Attempts() []reprise.Attempt { return c.attempts }

// Failure returns why the call ended without success, after an End that decided
// against a retry.
func (c *Call) Failure() *Error { return c.stop(c.reason, c.cause) }

// Stop ends the call for a reason that its user found, such as a request body
// that can't be sent again. cause may be nil.
func (c *Call) Stop(reason Reason, cause error) *Error { return c.stop(reason, cause) }

func (c *Call) stop(reason Reason, cause error) *Error {
	e := &Error{Reason: reason, Outcome: c.Outcome(), Attempts: c.attempts, RetryAt: c.retryAt, cause: cause}
	if n := len(c.attempts); n > 0 {
		e.Err = c.attempts[n-1].Err
	}
	switch reason {
	case ReasonDeadline:
		e.limit = context.DeadlineExceeded
	case ReasonCancelled:
		e.limit = c.ctx.Err()
	}
	return e
}
