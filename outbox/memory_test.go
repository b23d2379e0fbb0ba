// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// memory is a store.Relay in memory, on the clock of its test. It keeps the
// rules of the seam strictly, and fails on purpose where a test says so.
type memory struct {
	mu     sync.Mutex
	slots  []memorySlot
	rows   []memoryRow
	holds  []memoryHold // in the order of their rows
	bad    map[string]error
	wake   chan struct{}
	silent bool // commits do not wake

	// fault, if set, is asked before (done false) and after (done true) every
	// call; its error becomes the call's.
	fault func(op string, done bool) error
	calls map[string]int
}

type memorySlot struct {
	owner    string
	epoch    int64
	until    time.Time
	position int
}

type memoryRow struct {
	number int // from 1, in the order of commits
	slot   int
	at     time.Time
	reprise.Message
}

type memoryHold struct {
	memoryRow
	store.Hold
}

func newMemory(slots int) *memory {
	return &memory{
		slots: make([]memorySlot, slots), bad: make(map[string]error),
		wake: make(chan struct{}, 1), calls: make(map[string]int),
	}
}

// commit adds messages as a transaction would.
func (s *memory) commit(messages ...reprise.Message) {
	s.mu.Lock()
	for _, m := range messages {
		h := fnv.New32a()
		_, _ = h.Write([]byte(m.Subject))
		s.rows = append(s.rows, memoryRow{
			number: len(s.rows) + 1, slot: int(h.Sum32()) % len(s.slots), at: time.Now(), Message: m,
		})
	}
	s.mu.Unlock()
	if !s.silent {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// call runs one method's body under the lock, between the two faults.
func (s *memory) call(ctx context.Context, op string, body func() error) error {
	s.mu.Lock()
	fault := s.fault
	s.calls[op]++
	s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault != nil {
		if err := fault(op, false); err != nil {
			return err
		}
	}
	s.mu.Lock()
	err := body()
	s.mu.Unlock()
	if err == nil && fault != nil {
		err = fault(op, true)
	}
	if err == nil {
		err = ctx.Err() // It is done, but nobody waited for the answer.
	}
	return err
}

func (s *memory) fenced(ctx context.Context, op string, held store.Slot, body func(*memorySlot) error) error {
	return s.call(ctx, op, func() error {
		slot := &s.slots[held.Number]
		if slot.epoch != held.Epoch || slot.owner != held.Owner {
			return store.ErrLeaseLost
		}
		return body(slot)
	})
}

func (s *memory) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) (held []store.Slot, err error) {
	err = s.call(ctx, "acquire", func() error {
		for n := range s.slots {
			slot := &s.slots[n]
			if len(held) == limit || time.Now().Before(slot.until) {
				continue
			}
			slot.owner, slot.until = owner, time.Now().Add(lease)
			slot.epoch++
			held = append(held, store.Slot{Number: n, Owner: owner, Epoch: slot.epoch})
		}
		return nil
	})
	return held, err
}

func (s *memory) Renew(ctx context.Context, held store.Slot, lease time.Duration) error {
	return s.fenced(ctx, "renew", held, func(slot *memorySlot) error {
		slot.until = time.Now().Add(lease)
		return nil
	})
}

func (s *memory) Release(ctx context.Context, held store.Slot) error {
	err := s.fenced(ctx, "release", held, func(slot *memorySlot) error {
		slot.owner, slot.until = "", time.Time{}
		return nil
	})
	if err == store.ErrLeaseLost {
		return nil
	}
	return err
}

func (s *memory) Fetch(ctx context.Context, held store.Slot, limit int) (p store.Page, err error) {
	err = s.call(ctx, "fetch", func() error {
		p.Unreadable = make(map[int]error)
		for _, row := range s.rows[s.slots[held.Number].position:] {
			if len(p.Messages) == limit {
				break
			}
			p.Position = fmt.Sprint(row.number)
			if row.slot != held.Number {
				continue
			}
			m := row.Message
			if err := s.bad[m.ID]; err != nil {
				p.Unreadable[len(p.Messages)] = err
				m = reprise.Message{ID: m.ID, Subject: m.Subject}
			}
			p.Messages = append(p.Messages, m)
		}
		return nil
	})
	return p, err
}

func (s *memory) Advance(ctx context.Context, held store.Slot, p store.Page, holds []store.Hold) error {
	return s.fenced(ctx, "advance", held, func(slot *memorySlot) error {
		position := 0
		if _, err := fmt.Sscan(p.Position, &position); err != nil || position <= slot.position {
			return fmt.Errorf("position %q does not follow %d", p.Position, slot.position)
		}
		for _, h := range holds {
			i := slices.IndexFunc(s.rows, func(r memoryRow) bool { return r.ID == h.Message.ID })
			if i < 0 || i < slot.position || i >= position {
				return fmt.Errorf("message %q is not in the page", h.Message.ID)
			}
			s.hold(s.rows[i], h)
		}
		slot.position = position
		return nil
	})
}

// hold enters h for row, with lock held.
func (s *memory) hold(row memoryRow, h store.Hold) {
	h.Message, h.NextAt = row.Message, time.Now().Add(h.Delay)
	s.holds = slices.DeleteFunc(s.holds, func(o memoryHold) bool { return o.number == row.number })
	if h.State == store.HoldDelivered {
		return
	}
	s.holds = append(s.holds, memoryHold{row, h})
	slices.SortFunc(s.holds, func(a, b memoryHold) int { return a.number - b.number })
}

func (s *memory) Due(ctx context.Context, held store.Slot, limit int) (due []store.Hold, err error) {
	err = s.call(ctx, "due", func() error {
		seen := make(map[string]bool)
		for _, h := range s.holds {
			first := h.Subject == "" || !seen[h.Subject]
			seen[h.Subject] = true
			ready := h.State == store.HoldRetry && !time.Now().Before(h.NextAt) || h.State == store.HoldBlocked && first
			if h.slot == held.Number && ready && len(due) < limit {
				h.Unreadable = s.bad[h.ID]
				due = append(due, h.Hold)
			}
		}
		return nil
	})
	return due, err
}

func (s *memory) Subjects(ctx context.Context, held store.Slot) (subjects map[string]bool, err error) {
	err = s.call(ctx, "subjects", func() error {
		subjects = make(map[string]bool)
		for _, h := range s.holds {
			if h.slot == held.Number && h.Subject != "" {
				subjects[h.Subject] = true
			}
		}
		return nil
	})
	return subjects, err
}

func (s *memory) Update(ctx context.Context, held store.Slot, holds []store.Hold) error {
	return s.fenced(ctx, "update", held, func(*memorySlot) error {
		for _, h := range holds {
			i := slices.IndexFunc(s.holds, func(o memoryHold) bool { return o.ID == h.Message.ID })
			if i < 0 {
				return fmt.Errorf("message %q is not held", h.Message.ID)
			}
			s.hold(s.holds[i].memoryRow, h)
		}
		return nil
	})
}

func (s *memory) Wake() <-chan struct{} { return s.wake }

func (s *memory) Backlog(ctx context.Context) (b store.Backlog, err error) {
	err = s.call(ctx, "backlog", func() error {
		for _, row := range s.rows {
			if row.number > s.slots[row.slot].position {
				b.Waiting++
			}
		}
		for _, h := range s.holds {
			switch h.State {
			case store.HoldRetry:
				b.Retry++
			case store.HoldBlocked:
				b.Blocked++
			case store.HoldParked:
				b.Parked++
			}
		}
		return nil
	})
	return b, err
}

// held returns the hold of a message, if there is one.
func (s *memory) held(id string) (store.Hold, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		if h.ID == id {
			return h.Hold, true
		}
	}
	return store.Hold{}, false
}

// slot returns a slot as it stands.
func (s *memory) slot(n int) memorySlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[n]
}

// leased counts slots with an owner whose lease runs.
func (s *memory) leased() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.slots {
		if slot.owner != "" && time.Now().Before(slot.until) {
			n++
		}
	}
	return n
}

func (s *memory) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}
