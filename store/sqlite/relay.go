// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// deleteChunk is how many delivered messages one Advance deletes at most.
const deleteChunk = 500

// relay is the delivering side of the outbox. There is one slot: a single writer
// commits in the order of ids, so one cursor passes over nothing.
type relay struct {
	d    *Driver
	wake func() <-chan struct{}
}

// Relay implements store.Outbox.
func (d *Driver) Relay() store.Relay { return &relay{d, sync.OnceValue(d.wakes.Listen)} }

// Wake implements store.Relay. Messages of other processes, and those enqueued
// in foreign transactions, don't wake: the relay's poll finds them.
func (r *relay) Wake() <-chan struct{} { return r.wake() }

// atomic runs a write of the relay as one transaction.
func (r *relay) atomic(ctx context.Context, work func(s *session) error) error {
	return r.d.writer.do(ctx, func(s *session) error {
		return s.atomic(func() error { return classify(work(s)) })
	})
}

// Acquire implements store.Relay.
func (r *relay) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) (slots []store.Slot, err error) {
	if limit < 1 {
		return nil, nil
	}
	free := false
	// A look without the write lock first: most askers find the slot taken.
	err = r.d.read(ctx, func([]driver.Value) error { free = true; return nil },
		"SELECT 1 FROM reprise_outbox_slot WHERE slot = 0 AND lease_until <= ?", now().UnixMicro())
	if err != nil || !free {
		return nil, err
	}
	err = r.atomic(ctx, func(s *session) error {
		slots = nil
		at := now()
		return s.conn.Query(context.Background(), func(row []driver.Value) error {
			c := record.Read(row)
			slots = append(slots, store.Slot{Number: 0, Owner: owner, Epoch: c.Number()})
			return c.Err()
		}, "UPDATE reprise_outbox_slot SET owner = ?, epoch = epoch + 1, lease_until = ? "+
			"WHERE slot = 0 AND lease_until <= ? RETURNING epoch", owner, at.Add(lease).UnixMicro(), at.UnixMicro())
	})
	if err != nil {
		return nil, err
	}
	return slots, nil
}

// Renew implements store.Relay.
func (r *relay) Renew(ctx context.Context, slot store.Slot, lease time.Duration) error {
	return r.atomic(ctx, func(s *session) error {
		return s.fence(slot, "UPDATE reprise_outbox_slot SET lease_until = ? WHERE slot = ? AND epoch = ?",
			now().Add(lease).UnixMicro())
	})
}

// Release implements store.Relay.
func (r *relay) Release(ctx context.Context, slot store.Slot) error {
	return r.atomic(ctx, func(s *session) error {
		_, err := s.conn.Exec(context.Background(),
			"UPDATE reprise_outbox_slot SET lease_until = 0 WHERE slot = ? AND epoch = ?", slot.Number, slot.Epoch)
		return err
	})
}

// fence runs an update of the slot that ends in "slot = ? AND epoch = ?".
func (s *session) fence(slot store.Slot, query string, args ...any) error {
	n, err := s.conn.Exec(context.Background(), query, append(args, slot.Number, slot.Epoch)...)
	if err == nil && n == 0 {
		return store.ErrLeaseLost
	}
	return err
}

// Fetch implements store.Relay.
func (r *relay) Fetch(ctx context.Context, slot store.Slot, limit int) (store.Page, error) {
	var p store.Page
	err := r.d.read(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		id := c.Number()
		m, unreadable := c.Message()
		if unreadable != nil {
			if p.Unreadable == nil {
				p.Unreadable = map[int]error{}
			}
			p.Unreadable[len(p.Messages)] = unreadable
		}
		p.Messages = append(p.Messages, m)
		p.Position = strconv.FormatInt(id, 10)
		return nil
	}, "SELECT id, "+messageColumns+" FROM reprise_outbox "+
		"WHERE id > (SELECT position FROM reprise_outbox_slot WHERE slot = ?) ORDER BY id LIMIT ?", slot.Number, limit)
	return p, err
}

// Advance implements store.Relay.
func (r *relay) Advance(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
	if p.Position == "" && len(p.Messages) == 0 {
		return nil
	}
	to, err := strconv.ParseInt(p.Position, 10, 64)
	if err != nil || to < 1 {
		return fmt.Errorf("sqlite: %q is not a position that Fetch returned", p.Position)
	}
	return r.atomic(ctx, func(s *session) error {
		var from int64
		err := s.conn.Query(context.Background(), func(row []driver.Value) error {
			c := record.Read(row)
			from = c.Number()
			return c.Err()
		}, "SELECT position FROM reprise_outbox_slot WHERE slot = ?", slot.Number)
		if err != nil {
			return err
		}
		err = s.fence(slot, "UPDATE reprise_outbox_slot SET position = max(position, ?) WHERE slot = ? AND epoch = ?", to)
		if err != nil {
			return err
		}
		for _, h := range holds {
			if err := s.hold(h, from, to); err != nil {
				return err
			}
		}
		failpoint.Hit("sqlite/advance")
		return s.deleteDelivered(r.d.options.DeliveredRetention)
	})
}

// hold copies the stored row of a message between two positions, as it is, into
// the hold table.
func (s *session) hold(h store.Hold, from, to int64) error {
	if err := checkHold(h); err != nil {
		return err
	}
	n, err := s.conn.Exec(context.Background(),
		"INSERT INTO reprise_outbox_hold (id, "+messageColumns+", state, attempts, next_at, reason) "+
			"SELECT id, "+messageColumns+", ?, ?, ?, ? FROM reprise_outbox "+
			"WHERE source = ? AND message_id = ? AND id > ? AND id <= ?",
		string(h.State), h.Attempts, now().Add(h.Delay).UnixMicro(), h.Reason,
		h.Message.Source, h.Message.ID, from, to)
	if err == nil && n == 0 {
		return fmt.Errorf("sqlite: message %q of source %q is not in the page", h.Message.ID, h.Message.Source)
	}
	return err
}

func checkHold(h store.Hold) error {
	if h.State == store.HoldRetry || h.State == store.HoldBlocked || h.State == store.HoldParked {
		return nil
	}
	return fmt.Errorf("sqlite: message %q can't be held as %q", h.Message.ID, h.State)
}

// deleteDelivered deletes the oldest messages behind the position, as far as
// their retention is over. It looks at no more rows than it may delete.
func (s *session) deleteDelivered(retention time.Duration) error {
	_, err := s.conn.Exec(context.Background(),
		"DELETE FROM reprise_outbox WHERE id <= (SELECT max(id) FROM "+
			"(SELECT id, enqueued_at FROM reprise_outbox WHERE id <= (SELECT position FROM reprise_outbox_slot WHERE slot = 0) "+
			"ORDER BY id LIMIT ?) WHERE enqueued_at <= ?)",
		deleteChunk, now().Add(-retention).UnixMicro())
	return err
}

// Due implements store.Relay.
func (r *relay) Due(ctx context.Context, _ store.Slot, limit int) (holds []store.Hold, err error) {
	err = r.d.read(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		h := store.Hold{State: store.HoldState(c.Text()), Attempts: int(c.Number()), NextAt: c.Time(), Reason: c.Text()}
		h.Message, h.Unreadable = c.Message()
		holds = append(holds, h)
		return nil
	}, "SELECT state, attempts, next_at, reason, "+messageColumns+" FROM reprise_outbox_hold AS h "+
		"WHERE state = 'retry' AND next_at <= ? OR state = 'blocked' AND (subject = '' OR NOT EXISTS "+
		"(SELECT 1 FROM reprise_outbox_hold AS e WHERE e.subject = h.subject AND e.id < h.id)) ORDER BY id LIMIT ?",
		now().UnixMicro(), limit)
	return holds, err
}

// Subjects implements store.Relay.
func (r *relay) Subjects(ctx context.Context, _ store.Slot) (map[string]bool, error) {
	subjects := map[string]bool{}
	err := queryRows(ctx, r.d.db, func(row []driver.Value) error {
		subjects[text(row[0])] = true
		return nil
	}, "SELECT DISTINCT subject FROM reprise_outbox_hold WHERE subject <> ''")
	return subjects, err
}

// Update implements store.Relay.
func (r *relay) Update(ctx context.Context, slot store.Slot, holds []store.Hold) error {
	if len(holds) == 0 {
		return nil
	}
	return r.atomic(ctx, func(s *session) error {
		if err := s.fence(slot, "UPDATE reprise_outbox_slot SET epoch = epoch WHERE slot = ? AND epoch = ?"); err != nil {
			return err
		}
		for _, h := range holds {
			if err := s.updateHold(h); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *session) updateHold(h store.Hold) error {
	const these = " WHERE source = ? AND message_id = ?"
	if h.State == store.HoldDelivered {
		_, err := s.conn.Exec(context.Background(), "DELETE FROM reprise_outbox_hold"+these, h.Message.Source, h.Message.ID)
		return err
	}
	if err := checkHold(h); err != nil {
		return err
	}
	_, err := s.conn.Exec(context.Background(),
		"UPDATE reprise_outbox_hold SET state = ?, attempts = ?, next_at = ?, reason = ?"+these,
		string(h.State), h.Attempts, now().Add(h.Delay).UnixMicro(), h.Reason, h.Message.Source, h.Message.ID)
	return err
}

// orLast puts "none" behind every time.
func orLast(micros int64) int64 {
	if micros == 0 {
		return math.MaxInt64
	}
	return micros
}
