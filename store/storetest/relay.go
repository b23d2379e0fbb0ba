// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// relay is a relay that holds every slot.
type relay[TTx any] struct {
	f     *fixture[TTx]
	store store.Relay
	slots []store.Slot
}

// relay acquires all slots that can be had, at least one.
func (f *fixture[TTx]) relay(d store.Driver[TTx], owner string) *relay[TTx] {
	f.Helper()
	r := &relay[TTx]{f: f, store: d.Relay()}
	f.until("slots could be acquired", func() bool {
		more, err := r.store.Acquire(f.ctx, owner, lease, 1000)
		if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrBusy) {
			f.Fatalf("acquire: %v", err)
		}
		r.slots = append(r.slots, more...)
		return len(r.slots) > 0 && len(more) == 0
	})
	return r
}

// until polls for what may take a driver a moment.
func (f *fixture[TTx]) until(what string, done func() bool) {
	f.Helper()
	for deadline := time.Now().Add(f.patience / 2); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) || f.ctx.Err() != nil {
			f.Fatalf("waited in vain until %s", what)
		}
	}
}

// fetch returns one page of every slot that has one.
func (r *relay[TTx]) fetch(limit int) map[store.Slot]store.Page {
	r.f.Helper()
	pages := map[store.Slot]store.Page{}
	for _, slot := range r.slots {
		p, err := r.store.Fetch(r.f.ctx, slot, limit)
		if err != nil {
			r.f.Fatalf("fetch of slot %d: %v", slot.Number, err)
		}
		if len(p.Messages) > limit {
			r.f.Errorf("fetch of at most %d messages returned %d", limit, len(p.Messages))
		}
		if len(p.Unreadable) > 0 {
			r.f.Errorf("fetch could not read %v", p.Unreadable)
		}
		if len(p.Messages) > 0 {
			pages[slot] = p
		}
	}
	return pages
}

// drain takes messages until it has seen n and there are no more.
func (r *relay[TTx]) drain(n, limit int) (all []reprise.Message) {
	r.f.Helper()
	for deadline := time.Now().Add(r.f.patience / 2); ; time.Sleep(time.Millisecond) {
		pages := r.fetch(limit)
		for slot, p := range pages {
			all = append(all, p.Messages...)
			if err := r.advance(slot, p); err != nil {
				r.f.Fatalf("advance: %v", err)
			}
		}
		switch {
		case len(pages) > 0:
		case len(all) >= n:
			return all
		case time.Now().After(deadline):
			r.f.Fatalf("%d messages were fetched, want %d: %.300q", len(all), n, idsOf(all))
		}
	}
}

func (r *relay[TTx]) advance(slot store.Slot, p store.Page, holds ...store.Hold) error {
	return again(r.f.ctx, func() error { return r.store.Advance(r.f.ctx, slot, p, holds) })
}

// wantDelivered drains the outbox and fails unless it held exactly these ids.
func (r *relay[TTx]) wantDelivered(ids ...string) {
	r.f.Helper()
	if got := idsOf(r.drain(len(ids), 100)); !slices.Equal(sorted(got), sorted(ids)) {
		r.f.Errorf("the messages are %q, want %q", got, ids)
	}
	r.wantBacklog(store.Backlog{})
}

func (r *relay[TTx]) wantBacklog(want store.Backlog) {
	r.f.Helper()
	got, err := r.store.Backlog(r.f.ctx)
	empty := want == store.Backlog{}
	if want.Oldest = got.Oldest; err != nil || got != want || got.Oldest.IsZero() != empty {
		r.f.Errorf("the backlog is %+v, error %v; want %+v", got, err, want)
	}
}

func idsOf(messages []reprise.Message) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}
