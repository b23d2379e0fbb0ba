// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/reprise-go/reprise"
)

// Outbox keeps messages from the transaction that made them until a sink has
// confirmed them.
type Outbox[TTx any] interface {
	// Enqueue adds messages to the transaction. In a transaction of this driver
	// they are buffered and written once, as the last statement before COMMIT
	// (rule O1); in any other they are written at once. Messages must be
	// complete: outbox.Outbox fills in ids and times.
	//
	// Source and ID are unique among the messages that are kept, whether waiting
	// or held: a second one fails with ErrDuplicateMessage, at the latest when its
	// transaction ends (rule O2).
	Enqueue(ctx context.Context, tx TTx, messages ...reprise.Message) error

	// Relay is the side of the outbox that delivers.
	Relay() Relay
}

// Relay is the storage of one relay. Work is divided into slots; a slot has one
// owner at a time, with an epoch, and every write checks it (rule O4). Slots,
// cursors and their visibility rules are the driver's own.
type Relay interface {
	// Acquire takes over every slot that is free or lapsed, up to limit, for the
	// duration of lease. It may return none.
	Acquire(ctx context.Context, owner string, lease time.Duration, limit int) ([]Slot, error)
	// Renew extends a lease, or fails with ErrLeaseLost.
	Renew(ctx context.Context, s Slot, lease time.Duration) error
	// Release gives a slot up. Releasing a lost slot is not an error.
	Release(ctx context.Context, s Slot) error

	// Fetch returns messages that no relay has taken from the slot yet, in the
	// order of their commits per subject, at most limit. It moves nothing.
	Fetch(ctx context.Context, s Slot, limit int) (Page, error)
	// Advance records, in one transaction fenced by the slot's epoch, that the
	// page is dealt with: everything in it was delivered, but for holds, which
	// move to the hold table. ErrLeaseLost means that nothing was recorded; after
	// ErrCommitUnknown the relay fetches again instead of repeating it.
	Advance(ctx context.Context, s Slot, p Page, holds []Hold) error

	// Due returns held messages that are to be tried now: those in HoldRetry
	// whose time has come, and those in HoldBlocked with no earlier held message
	// of their subject, in order. A message without a subject has no earlier one.
	Due(ctx context.Context, s Slot, limit int) ([]Hold, error)
	// Subjects returns the subjects that have held messages now. New messages of
	// these subjects must not be attempted: they are held as blocked.
	Subjects(ctx context.Context, s Slot) (map[string]bool, error)
	// Update changes held messages, in one transaction fenced by the epoch: a
	// hold with State HoldDelivered is removed, any other is replaced.
	Update(ctx context.Context, s Slot, holds []Hold) error

	// Wake receives a value, coalesced, after a transaction of this process has
	// committed messages: from its first call on, and on a channel of this Relay's
	// own, so that no relay takes another's. It is a hint: the table is the truth.
	Wake() <-chan struct{}
	// Backlog counts what is not delivered: waiting messages and holds by state.
	Backlog(ctx context.Context) (Backlog, error)
}

// Slot is one holding of one part of the outbox.
type Slot struct {
	Number int
	Owner  string
	Epoch  int64
}

// Page is a run of messages with the position that follows them.
type Page struct {
	Messages []reprise.Message
	// Unreadable says, by index in Messages, which rows could not be decoded, and
	// why. One bad row never fails the page: its message carries what could be
	// read, at least ID, and Subject where there is one; the relay parks it
	// without attempting it, and Advance keeps the stored row as it is.
	Unreadable map[int]error
	// Position is opaque outside the driver. Advance takes it back.
	Position string
}

// HoldState is why a message is held.
type HoldState string

const (
	// HoldRetry: delivery failed and is tried again at NextAt.
	HoldRetry HoldState = "retry"
	// HoldBlocked: an earlier message of the same subject is held.
	HoldBlocked HoldState = "blocked"
	// HoldParked: delivery is given up until an operator decides. Parked messages
	// never expire.
	HoldParked HoldState = "parked"
	// HoldDelivered is what Update takes for a message that has been delivered.
	HoldDelivered HoldState = "delivered"
)

// Hold is a message that the cursor has passed without its being delivered.
type Hold struct {
	Message reprise.Message
	State   HoldState
	// Attempts counts deliveries tried, including the one that failed.
	Attempts int
	// NextAt is when to try again, by the database's clock: now + Delay is set
	// when the hold is written; NextAt is read.
	NextAt time.Time
	// Delay until the next attempt, used when the hold is written.
	Delay time.Duration
	// Reason is the last error, for people, at most 1 KiB.
	Reason string
	// Unreadable is why the stored message could not be decoded; Message carries
	// what could be read. Set by Due alone.
	Unreadable error
}

// Backlog counts undelivered messages.
type Backlog struct {
	Waiting, Retry, Blocked, Parked int
	// Oldest is when the oldest undelivered message was enqueued; zero if none.
	Oldest time.Time
}
