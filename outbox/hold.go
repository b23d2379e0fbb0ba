// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/backoff"
	"github.com/reprise-go/reprise/store"
)

// maxReason is how much of an error is kept with a held message, in bytes.
const maxReason = 1 << 10

// The two ways in which a delivery ends without an answer. Neither is a failure
// of the message for certain: it may have arrived, and is sent again under its id.
var (
	// errNoAnswer: the time of the delivery was up. It counts as an attempt.
	errNoAnswer = errors.New("no confirmation in time; whether it arrived is unknown")
	// errInterrupted: the relay itself broke the delivery off. It says nothing
	// about the message.
	errInterrupted = errors.New("the relay stopped during the delivery; whether it arrived is unknown")
)

// unanswered is kind with what the sink said, if it said anything.
func unanswered(kind, err error) error {
	if err == nil {
		return kind
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// judge says what becomes of h after a delivery that ended with err (rules O6
// and O8). Attempts counts the delivery that failed, unless the failure is not
// the message's own.
func (r *Relay) judge(h store.Hold, err error) store.Hold {
	h.Delay, h.NextAt, h.Reason = 0, time.Time{}, ""
	if err == nil {
		h.Attempts++
		h.State = store.HoldDelivered
		return h
	}
	h.State, h.Reason = store.HoldRetry, reason(err)
	if errors.Is(err, errInterrupted) || isUnavailable(err) {
		return h
	}
	h.Attempts++
	switch {
	case isPermanent(err):
		h.State = store.HoldParked
	case h.Attempts >= r.config.MaxAttempts:
		h.State = store.HoldParked
		h.Reason = reason(fmt.Errorf("given up after %d attempts: %w", h.Attempts, err))
	default:
		h.Delay = rand.N(backoff.Ceiling(r.config.RetryBase, r.config.RetryCap, h.Attempts-1))
	}
	return h
}

// park says that h is given up without an attempt.
func park(h store.Hold, err error) store.Hold {
	h.State, h.Delay, h.NextAt, h.Reason = store.HoldParked, 0, time.Time{}, reason(err)
	return h
}

// block says that h waits for an earlier message of its subject.
func block(h store.Hold, behind string) store.Hold {
	h.State, h.Delay, h.NextAt = store.HoldBlocked, 0, time.Time{}
	h.Reason = reason(errors.New("waits for " + behind))
	return h
}

// reason is err as it is kept for people: valid UTF-8, cut to maxReason.
func reason(err error) string {
	s := strings.ToValidUTF8(err.Error(), "�")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
