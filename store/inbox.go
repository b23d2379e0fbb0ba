// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Inbox recognises messages that were handled before.
type Inbox[TTx any] interface {
	// Accept inserts the receipt into tx, before the effect (rule I1). fresh is
	// false when the message was accepted before, by a committed transaction or
	// earlier in this one. The stored digest is returned, so that the caller can
	// tell a redelivery from another payload under the same id.
	Accept(ctx context.Context, tx TTx, r Receipt) (fresh bool, stored [32]byte, err error)

	// PurgeInbox deletes at most limit receipts older than age and returns how
	// many it deleted.
	PurgeInbox(ctx context.Context, age time.Duration, limit int) (int, error)
}

// Receipt is the record of one handled message. Consumer, Source and MessageID
// are unique together.
type Receipt struct {
	Consumer  string
	Source    string
	MessageID string
	// Digest of the payload.
	Digest [32]byte
}
