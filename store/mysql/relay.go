// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// deleteChunk is how many delivered messages one Advance forgets at most when
// they are kept for a while.
const deleteChunk = 500

// relay is the delivering side of the outbox. There is one slot. That a row is
// there with a positive id means that it is not delivered: no position has to
// be remembered, so a transaction that commits late can't be passed over.
type relay struct {
	d    *Driver
	wake func() <-chan struct{}
}

// Relay implements store.Outbox.
func (d *Driver) Relay() store.Relay { return &relay{d, sync.OnceValue(d.wakes.Listen)} }

// Wake implements store.Relay. Messages of other processes, and those enqueued
// in foreign transactions, don't wake: the relay's poll finds them.
func (r *relay) Wake() <-chan struct{} { return r.wake() }

// Acquire implements store.Relay.
func (r *relay) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) (slots []store.Slot, err error) {
	if limit < 1 {
		return nil, nil
	}
	if err := fits("a relay's name", 255, owner); err != nil {
		return nil, err
	}
	free := false
	// A look without a lock first: most askers find the slot taken.
	err = r.d.query(ctx, func([]driver.Value) error { free = true; return nil },
		"SELECT slot FROM reprise_outbox_slot WHERE slot = 0 AND lease_until <= UTC_TIMESTAMP(6)")
	if err != nil || !free {
		return nil, err
	}
	err = r.d.session(ctx, func(s *session) error {
		a, err := s.write(render("UPDATE reprise_outbox_slot SET owner = ?, epoch = LAST_INSERT_ID(epoch + 1), "+
			"lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, writes = writes + 1 "+
			"WHERE slot = 0 AND lease_until <= UTC_TIMESTAMP(6)", owner, lease))
		if err == nil && a.affected[s.d.server.beginLen()] == 1 {
			slots = []store.Slot{{Number: 0, Owner: owner, Epoch: a.last(s.d.server.beginLen())}}
		}
		return err
	})
	return slots, err
}

// Renew implements store.Relay.
func (r *relay) Renew(ctx context.Context, slot store.Slot, lease time.Duration) error {
	return r.d.session(ctx, func(s *session) error {
		a, err := s.write(render("UPDATE reprise_outbox_slot SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, writes = writes + 1 "+
			"WHERE slot = ? AND epoch = ?", lease, slot.Number, slot.Epoch))
		return s.fenced(a, err)
	})
}

// Release implements store.Relay.
func (r *relay) Release(ctx context.Context, slot store.Slot) error {
	return r.d.session(ctx, func(s *session) error {
		_, err := s.write(render("UPDATE reprise_outbox_slot SET lease_until = '1970-01-01', writes = writes + 1 "+
			"WHERE slot = ? AND epoch = ?", slot.Number, slot.Epoch))
		return err
	})
}

// fence begins a transaction that only the owner of the slot gets through. It
// changes the row, because a cluster certifies changes and not locks.
func (s *session) fence(ctx context.Context, slot store.Slot) error {
	s.open = true
	return s.fenced(s.run(ctx, s.d.server.begin(render(
		"UPDATE reprise_outbox_slot SET writes = writes + 1 WHERE slot = ? AND epoch = ?", slot.Number, slot.Epoch))...))
}

// Fetch implements store.Relay.
func (r *relay) Fetch(ctx context.Context, _ store.Slot, limit int) (store.Page, error) {
	var p store.Page
	var ids []string
	err := r.d.query(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		ids = append(ids, strconv.FormatInt(c.Number(), 10))
		m, unreadable := c.Message()
		if unreadable != nil {
			if p.Unreadable == nil {
				p.Unreadable = map[int]error{}
			}
			p.Unreadable[len(p.Messages)] = unreadable
		}
		p.Messages = append(p.Messages, m)
		return nil
	}, render("SELECT id, "+messageColumns+" FROM reprise_outbox WHERE id > 0 ORDER BY id LIMIT ?", limit))
	p.Position = strings.Join(ids, ",")
	return p, err
}

// Advance implements store.Relay.
func (r *relay) Advance(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
	if p.Position == "" && len(p.Messages) == 0 {
		return nil
	}
	for id := range strings.SplitSeq(p.Position, ",") {
		if n, err := strconv.ParseInt(id, 10, 64); err != nil || n < 1 {
			return fmt.Errorf("mysql: %.40q is not a position that Fetch returned", p.Position)
		}
	}
	return r.d.session(ctx, func(s *session) error {
		if err := s.fence(ctx, slot); err != nil {
			return err
		}
		for _, h := range holds {
			if err := s.hold(ctx, h, p.Position); err != nil {
				return err
			}
		}
		failpoint.Hit("mysql/advance")
		done := []string{"DELETE FROM reprise_outbox WHERE id IN (" + p.Position + ")"}
		if r.d.options.DeliveredRetention > 0 {
			done = []string{"UPDATE reprise_outbox SET id = -id WHERE id IN (" + p.Position + ")", forgetDelivered(r.d.options.DeliveredRetention)}
		}
		_, err := s.commit(done...)
		return err
	})
}

// hold takes a message of the page out of those that wait. Its row stays as it is.
func (s *session) hold(ctx context.Context, h store.Hold, page string) error {
	if err := checkHold(h); err != nil {
		return err
	}
	a, err := s.run(ctx, render("INSERT INTO reprise_outbox_hold (id, subject, state, attempts, next_at, reason) "+
		"SELECT -id, subject, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ? FROM reprise_outbox "+
		"WHERE source = ? AND message_id = ? AND id IN ("+page+")",
		string(h.State), h.Attempts, h.Delay, h.Reason, h.Message.Source, h.Message.ID),
		render("UPDATE reprise_outbox SET id = -id WHERE source = ? AND message_id = ? AND id IN ("+page+")", h.Message.Source, h.Message.ID))
	if err != nil {
		return classify(err)
	}
	if a.affected[0] == 0 {
		return fmt.Errorf("mysql: message %q of source %q is not in the page", h.Message.ID, h.Message.Source)
	}
	return nil
}

func checkHold(h store.Hold) error {
	if h.State == store.HoldRetry || h.State == store.HoldBlocked || h.State == store.HoldParked {
		return nil
	}
	return fmt.Errorf("mysql: message %q can't be held as %q", h.Message.ID, h.State)
}

// forgetDelivered deletes the oldest delivered messages, as far as their
// retention is over. It looks at no more of them than it may delete.
func forgetDelivered(retention time.Duration) string {
	return render("DELETE o FROM reprise_outbox AS o JOIN (SELECT k.id, k.enqueued_at FROM reprise_outbox AS k WHERE k.id < 0 "+
		"AND NOT EXISTS (SELECT 1 FROM reprise_outbox_hold AS h WHERE h.id = k.id) ORDER BY k.id DESC LIMIT ?) AS oldest ON oldest.id = o.id "+
		"WHERE oldest.enqueued_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND", deleteChunk, retention)
}

// Due implements store.Relay. Held ids are negative, so the earlier one is the
// greater.
func (r *relay) Due(ctx context.Context, _ store.Slot, limit int) (holds []store.Hold, err error) {
	err = r.d.query(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		h := store.Hold{State: store.HoldState(c.Text()), Attempts: int(c.Number()), NextAt: c.Time(), Reason: c.Text()}
		h.Message, h.Unreadable = c.Message()
		holds = append(holds, h)
		return nil
	}, render("SELECT h.state, h.attempts, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', h.next_at), h.reason, "+
		"message_id, source, type, o.subject, time, content_type, data, header "+
		"FROM reprise_outbox_hold AS h JOIN reprise_outbox AS o ON o.id = h.id "+
		"WHERE h.state = 'retry' AND h.next_at <= UTC_TIMESTAMP(6) OR h.state = 'blocked' AND (h.subject = '' OR NOT EXISTS "+
		"(SELECT 1 FROM reprise_outbox_hold AS e WHERE e.subject = h.subject AND e.id > h.id)) ORDER BY h.id DESC LIMIT ?", limit))
	return holds, err
}

// Subjects implements store.Relay.
func (r *relay) Subjects(ctx context.Context, _ store.Slot) (map[string]bool, error) {
	subjects := map[string]bool{}
	err := r.d.query(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		subjects[c.Text()] = true
		return c.Err()
	}, "SELECT DISTINCT subject FROM reprise_outbox_hold WHERE subject <> ''")
	return subjects, err
}

// Update implements store.Relay.
func (r *relay) Update(ctx context.Context, slot store.Slot, holds []store.Hold) error {
	if len(holds) == 0 {
		return nil
	}
	var statements []string
	for _, h := range holds {
		more, err := r.update(h)
		if err != nil {
			return err
		}
		statements = append(statements, more...)
	}
	return r.d.session(ctx, func(s *session) error {
		if err := s.fence(ctx, slot); err != nil {
			return err
		}
		_, err := s.commit(statements...)
		return err
	})
}

func (r *relay) update(h store.Hold) ([]string, error) {
	const these = " reprise_outbox_hold AS h JOIN reprise_outbox AS o ON o.id = h.id"
	const identity = " WHERE o.source = ? AND o.message_id = ?"
	if h.State == store.HoldDelivered {
		what := "DELETE h, o FROM"
		if r.d.options.DeliveredRetention > 0 {
			what = "DELETE h FROM"
		}
		return []string{render(what+these+identity, h.Message.Source, h.Message.ID)}, nil
	}
	if err := checkHold(h); err != nil {
		return nil, err
	}
	return []string{render("UPDATE"+these+" SET h.state = ?, h.attempts = ?, h.next_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, h.reason = ?"+
		identity, string(h.State), h.Attempts, h.Delay, h.Reason, h.Message.Source, h.Message.ID)}, nil
}
