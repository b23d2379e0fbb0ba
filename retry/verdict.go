// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise"
)

// Verdict is what one attempt proved, and what its answer asks for. The zero
// value is the careful one: the effect is unknown.
type Verdict struct {
	// Outcome of this attempt.
	Outcome reprise.Outcome
	// Final means that the same request would end the same way, so that it is not
	// sent again whatever its outcome: a certificate that does not hold, an answer
	// that was replayed.
	Final bool
	// Settled means that the answer is the recorded result of the intent itself
	// and not of this attempt alone: a ledger's answer, or any answer to an
	// operation without effects. It overrules an earlier Unknown.
	Settled bool
	// InProgress means that another attempt at the same intent is at work. It is
	// waited for, whatever the operation is, without using up attempts (rule C7).
	InProgress bool
	// After is how long the other side asks to wait; 0 asks for nothing.
	After time.Duration
	// Trigger is why the next attempt will be made, for its record: "connect",
	// "reset", "timeout", "status-503", "in-progress".
	Trigger string
	// Err is why the attempt did not succeed, for the record and for the caller.
	Err error

	// Status, Sends and Reused are for the record.
	Status int
	Sends  int
	Reused bool
}

// Classifier judges an attempt of Do that ended in err, which is not nil. It
// must be safe for concurrent use.
type Classifier func(a *reprise.Attempt, err error) Verdict

// Classify is the default Classifier: an *reprise.Error claims its own outcome
// and wait, and every other error is Unknown.
func Classify(_ *reprise.Attempt, err error) Verdict {
	v := Verdict{Outcome: reprise.OutcomeOf(err), Trigger: "error", Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		v.Trigger = "timeout"
	}
	if e, ok := errors.AsType[*reprise.Error](err); ok {
		v.Trigger = string(e.Code)
		v.After = e.RetryAfter
		v.InProgress = e.Code == reprise.CodeInProgress
		v.Final = e.Code == reprise.CodeKeyExpired || e.Code == reprise.CodeKeyReused
	}
	return v
}
