// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
)

// Reason says why a call was not tried again.
type Reason string

// The reasons.
const (
	// ReasonFinal: the answer would be the same.
	ReasonFinal Reason = "final"
	// ReasonInDoubt: the attempt may have had its effect, and the operation is
	// not known to be safe to repeat.
	ReasonInDoubt Reason = "in-doubt"
	// ReasonAttempts: MaxAttempts are made.
	ReasonAttempts Reason = "attempts"
	// ReasonDeadline: the wait and another attempt do not fit the deadline.
	ReasonDeadline Reason = "deadline"
	// ReasonMaxWait: the other side asks for a wait longer than MaxWait.
	ReasonMaxWait Reason = "max-wait"
	// ReasonCancelled: the call's context was cancelled.
	ReasonCancelled Reason = "cancelled"
	// ReasonBody: the request's content can't be sent again.
	ReasonBody Reason = "body"
)

var reasonTexts = map[Reason]string{
	ReasonFinal:     "the answer is final",
	ReasonInDoubt:   "the operation is not safe to repeat",
	ReasonAttempts:  "all attempts are used up",
	ReasonDeadline:  "another attempt does not fit the deadline",
	ReasonMaxWait:   "asked for a wait longer than allowed",
	ReasonCancelled: "cancelled",
	ReasonBody:      "the request's content can't be sent again",
}

// Error is how a call ends that did not succeed.
//
// It matches both what ended it and what the last attempt met: errors.Is finds
// context.DeadlineExceeded, also when the call stopped before a wait that would
// not have fitted, or context.Canceled, and the last attempt's error. It
// contains a *reprise.Error, so that reprise.OutcomeOf gives Outcome, and
// matches reprise.ErrOutcomeUnknown when that is Unknown.
type Error struct {
	// Reason is why there was no further attempt.
	Reason Reason
	// Outcome is what all attempts together prove. Unknown means that the effect
	// may have happened, whatever the last attempt met (rule C2).
	Outcome reprise.Outcome
	// Attempts are the records of all attempts, the last one last.
	Attempts []reprise.Attempt
	// RetryAt is the earliest moment that the other side asked for, or the zero
	// Time. The caller may come back then, with the same key.
	RetryAt time.Time
	// Err is the last attempt's error; nil when there was no attempt.
	Err error

	limit error // context.DeadlineExceeded or context.Canceled.
	cause error // The context's cause, or what kept the next attempt from being made.
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(reasonTexts[e.Reason])
	switch n := len(e.Attempts); n {
	case 0:
		b.WriteString(" before the first attempt")
	case 1:
		b.WriteString(" after 1 attempt")
	default:
		fmt.Fprintf(&b, " after %d attempts", n)
	}
	fmt.Fprintf(&b, ", outcome %v", e.Outcome)
	if !e.RetryAt.IsZero() {
		b.WriteString(", try again at " + e.RetryAt.UTC().Format(time.RFC3339))
	}
	for _, err := range []error{e.cause, e.Err} {
		if err != nil {
			b.WriteString(": " + err.Error())
		}
	}
	return b.String()
}

// Unwrap returns an *reprise.Error with the call's outcome, which wraps the last
// attempt's error, and what limited the call.
func (e *Error) Unwrap() []error {
	errs := []error{e.word()}
	for _, err := range []error{e.cause, e.limit} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// word says it in the library's own words. The code is the last attempt's, unless
// that one claims to know more than the call does.
func (e *Error) word() *reprise.Error {
	w := &reprise.Error{Code: reprise.CodeInternal, Outcome: e.Outcome, Err: e.Err}
	if e.Outcome == reprise.Unknown {
		w.Code = reprise.CodeOutcomeUnknown
	}
	said := e.Err
	if said == nil {
		said = e.cause
	}
	if last, ok := errors.AsType[*reprise.Error](said); ok && last.Outcome == e.Outcome {
		w.Code, w.Detail, w.Reference, w.RetryAfter = last.Code, last.Detail, last.Reference, last.RetryAfter
	}
	return w
}

// Is reports whether target asks for an unknown outcome and this is one.
func (e *Error) Is(target error) bool {
	t, ok := target.(*reprise.Error)
	return ok && t.Code == reprise.CodeOutcomeUnknown && e.Outcome == reprise.Unknown
}

// Timeout reports whether the deadline ended the call, as net.Error asks.
func (e *Error) Timeout() bool { return e.Reason == ReasonDeadline }
