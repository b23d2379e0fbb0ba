// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// Sink is where messages go: a broker, an endpoint, a consumer in this process.
// It is called concurrently, but never for two messages of one subject at once.
type Sink interface {
	// Deliver hands m on and returns nil once the destination has confirmed that
	// it has it (rule O7). Queued, flushed or written to a socket is not confirmed.
	//
	// Any error means that m is delivered again, under the same id, so a
	// confirmation that did not come in time is an error too. Permanent and
	// Unavailable say more about it. An error with the outcome reprise.Rejected
	// is permanent, and store.ErrUnavailable is unavailable, without being
	// wrapped.
	//
	// Deliver must return soon after ctx is done, and what it returns then never
	// counts as a confirmation (rule I4). It must not keep or change m.
	Deliver(ctx context.Context, m reprise.Message) error
}

// SinkFunc is a function as a Sink.
type SinkFunc func(ctx context.Context, m reprise.Message) error

// Deliver calls f.
func (f SinkFunc) Deliver(ctx context.Context, m reprise.Message) error { return f(ctx, m) }

// Permanent marks an error that will be the same on every attempt: the message
// is too large, can't be decoded, or is refused for what it says. It is parked at
// once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// Unavailable marks an error that says nothing about the message, because the
// destination could not be reached at all. The attempt does not count, and the
// relay pauses before it tries the destination again with one message at a time.
//
// It must stand for the whole sink. A sink that routes to several destinations
// returns ordinary errors while one of them is away, or it would hold up the
// others. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailable{err}
}

type permanent struct{ err error }

func (e *permanent) Error() string { return e.err.Error() }
func (e *permanent) Unwrap() error { return e.err }

type unavailable struct{ err error }

func (e *unavailable) Error() string { return e.err.Error() }
func (e *unavailable) Unwrap() error { return e.err }

func isPermanent(err error) bool {
	_, marked := errors.AsType[*permanent](err)
	return marked || reprise.OutcomeOf(err) == reprise.Rejected
}

// isUnavailable gives way to isPermanent: a decision about the message outlives
// the outage it was made in.
func isUnavailable(err error) bool {
	_, marked := errors.AsType[*unavailable](err)
	away := marked || errors.Is(err, store.ErrUnavailable) || errors.Is(err, reprise.ErrStoreUnavailable)
	return away && !isPermanent(err)
}
