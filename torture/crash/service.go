// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"

	"github.com/reprise-go/reprise"
)

// Order is one intent of a client. Ref is the business's own name for it, which
// is unique and independent of the key, so that effects can be counted even if
// the key is lost.
type Order struct {
	Key reprise.Key `json:"key"`
	Ref string      `json:"ref"`
}

// newOrder returns an intent that nobody had before.
func newOrder() Order {
	return Order{Key: reprise.NewKey(), Ref: string(reprise.NewKey())}
}

// Answer is what one attempt was told. The zero value is that it got no answer.
type Answer struct {
	// Outcome is Succeeded with the Body that every attempt must be given,
	// NotProcessed if it is certain that this attempt has had no effect, and Unknown
	// otherwise.
	Outcome reprise.Outcome `json:"outcome"`
	Body    string          `json:"body,omitempty"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
}

// Effects counts what an order has left, by kind.
type Effects map[string]int

// Program is a service, in this process or in one of its own.
type Program interface {
	// Attempt serves one request of a client.
	Attempt(ctx context.Context, o Order) Answer
	// Close ends the program.
	Close() error
}

// Injection is one fault at one place: Mode strikes at the At-th point that it
// applies to, counted from 1. The zero value is no fault.
type Injection struct {
	Mode string
	At   int64
}

// Service starts instances of a service under test.
type Service interface {
	// Start starts an instance in which a fault will strike.
	Start(ctx context.Context, in Injection) (Instance, error)
	// Effects asks the database itself what an order has left.
	Effects(ctx context.Context, o Order) (Effects, error)
	// Want is what an order leaves when it was executed once.
	Want() Effects
}

// Instance is one running copy of the service.
type Instance interface {
	Program

	// Hit reports whether the fault has struck.
	Hit() bool
	// Held is closed when the fault has struck and keeps the attempt waiting for
	// Release: a partition, or a process that is stopped. It may be nil.
	Held() <-chan struct{}
	// Release ends what Held has begun. It does nothing otherwise.
	Release()
	// Alive reports whether the instance can still be asked.
	Alive() bool
}
