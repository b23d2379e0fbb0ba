// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/store"
)

// relay is the delivering side of the outbox. There is one slot: its owner is
// faster than the commits of a server, and delivers with as many workers as it
// likes, while every further slot would add its share to what each wake-up costs.
type relay struct {
	core *Core
	wake func() <-chan struct{}

	mu   sync.Mutex
	plan plan
}

// Relay implements store.Outbox.
func (c *Core) Relay() store.Relay { return &relay{core: c, wake: sync.OnceValue(c.wakes.Listen)} }

// Wake implements store.Relay. Messages of other processes, and those enqueued
// in foreign transactions, don't wake: the relay's poll finds them.
func (r *relay) Wake() <-chan struct{} { return r.wake() }

// Acquire implements store.Relay.
func (r *relay) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) (slots []store.Slot, err error) {
	if limit < 1 {
		return nil, nil
	}
	const free = "slot = 0 AND lease_until <= clock_timestamp()"
	seen := false
	// A look without a lock first: most askers find the slot taken.
	err = r.core.read(ctx, func(conn Conn) error {
		return conn.Query(ctx, "SELECT 1 FROM reprise_outbox_slot WHERE "+free, func(Scan) error { seen = true; return nil })
	})
	if err != nil || !seen {
		return nil, err
	}
	err = r.core.write(ctx, func(conn Conn) error {
		slots = nil
		return conn.Query(ctx, "UPDATE reprise_outbox_slot SET owner = $1::text, epoch = epoch + 1, "+
			"lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond' WHERE "+free+" RETURNING epoch",
			func(scan Scan) error {
				s := store.Slot{Number: 0, Owner: owner}
				err := scan(&s.Epoch)
				slots = append(slots, s)
				return err
			}, owner, lease.Microseconds())
	})
	if err != nil {
		return nil, err
	}
	return slots, nil
}

// Renew implements store.Relay.
func (r *relay) Renew(ctx context.Context, slot store.Slot, lease time.Duration) error {
	return r.core.write(ctx, func(conn Conn) error {
		n, err := conn.Exec(ctx, "UPDATE reprise_outbox_slot SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond' "+
			"WHERE slot = $1::bigint AND epoch = $2::bigint AND lease_until <> 'epoch'", int64(slot.Number), slot.Epoch, lease.Microseconds())
		if err == nil && n == 0 {
			err = store.ErrLeaseLost
		}
		return err
	})
}

// Release implements store.Relay. A slot that was released is lost at once: its
// epoch is over.
func (r *relay) Release(ctx context.Context, slot store.Slot) error {
	return r.core.write(ctx, func(conn Conn) error {
		_, err := conn.Exec(ctx, "UPDATE reprise_outbox_slot SET lease_until = 'epoch' WHERE slot = $1::bigint AND epoch = $2::bigint",
			int64(slot.Number), slot.Epoch)
		return err
	})
}

// fence keeps the slot from being taken over until the transaction ends. It locks
// the row without writing it.
func fence(ctx context.Context, conn Conn, slot store.Slot) error {
	n, err := conn.Exec(ctx, "SELECT 1 FROM reprise_outbox_slot WHERE slot = $1::bigint AND epoch = $2::bigint FOR SHARE",
		int64(slot.Number), slot.Epoch)
	if err == nil && n == 0 {
		err = store.ErrLeaseLost
	}
	return err
}
