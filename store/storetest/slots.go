// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/store"
)

func slotRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"O4_slot_has_one_owner",
			"A slot that is held is given to nobody else, in this process or in another, until its lease has lapsed or it is released.",
			slotHasOneOwner[TTx],
		},
		{
			"O4_concurrent_relays_share_no_slot",
			"Relays that acquire at once, in two processes, get different slots.",
			relaysShareNoSlot[TTx],
		},
		{
			"O4_lapsed_slot_is_taken_over_under_a_later_epoch",
			"A slot whose lease has lapsed goes to the next relay under a later epoch, also after a restart; a renewed one does not.",
			lapsedSlot[TTx],
		},
		{
			"O4_zombie_relay_records_nothing",
			"A relay that lost its slot is refused with ErrLeaseLost, even if the new owner has its name: nothing is advanced, held or changed.",
			zombieRelay[TTx],
		},
		{
			"O4_releasing_a_lost_slot_takes_it_from_nobody",
			"Releasing a slot that was lost is no error, and does not take it from its new owner.",
			releaseLost[TTx],
		},
	}
}

// acquire returns the slots that can be had at this moment.
func (f *fixture[TTx]) acquire(d store.Driver[TTx], owner string, limit int) (slots []store.Slot) {
	f.Helper()
	err := again(f.ctx, func() (err error) {
		slots, err = d.Relay().Acquire(f.ctx, owner, lease, limit)
		return err
	})
	if err != nil {
		f.Fatalf("acquire: %v", err)
	}
	if len(slots) > limit {
		f.Errorf("%d slots were acquired, the limit is %d", len(slots), limit)
	}
	return slots
}

func slotHasOneOwner[TTx any](f *fixture[TTx]) {
	r := f.relay(f.d, "first")
	seen := map[int]bool{}
	for _, s := range r.slots {
		if seen[s.Number] || s.Owner != "first" || s.Epoch < 1 {
			f.Errorf("acquired slot %+v, seen before: %t", s, seen[s.Number])
		}
		seen[s.Number] = true
	}
	for _, d := range f.both() {
		if got := f.acquire(d, "second", 1000); len(got) != 0 {
			f.Errorf("held slots were given away: %+v", got)
		}
	}
	freed := r.slots[0]
	if err := r.store.Release(f.ctx, freed); err != nil {
		f.Fatalf("release: %v", err)
	}
	second, _ := f.open()
	got := f.acquire(second, "second", 1)
	if len(got) != 1 || got[0].Number != freed.Number || got[0].Epoch <= freed.Epoch {
		f.Errorf("after slot %+v was released %+v was acquired, want it under a later epoch", freed, got)
	}
	if err := r.store.Renew(f.ctx, freed, lease); !errors.Is(err, store.ErrLeaseLost) {
		f.Errorf("renewing a slot that was released: %v, want ErrLeaseLost", err)
	}
}

func relaysShareNoSlot[TTx any](f *fixture[TTx]) {
	const rounds, relays = 5, 8
	drivers := f.both()
	all := len(f.relay(f.d, "counter").slots)
	for range rounds {
		f.age(lease + time.Minute)
		var (
			wg    sync.WaitGroup
			start = make(chan struct{})
			mu    sync.Mutex
			held  = map[int]int{}
		)
		for n := range relays {
			wg.Go(func() {
				<-start
				err := again(f.ctx, func() error {
					slots, err := drivers[n%2].Relay().Acquire(f.ctx, "relay", lease, 1000)
					mu.Lock()
					defer mu.Unlock()
					for _, s := range slots {
						held[s.Number]++
					}
					return err
				})
				if err != nil {
					f.Errorf("acquire: %v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		for number, owners := range held {
			if owners != 1 {
				f.Errorf("slot %d was given to %d relays", number, owners)
			}
		}
		if len(held) != all {
			f.Errorf("%d of %d lapsed slots were acquired", len(held), all)
		}
	}
}

func lapsedSlot[TTx any](f *fixture[TTx]) {
	d, stop := f.open()
	first := f.relay(d, "first")
	f.age(lease / 2)
	for _, s := range first.slots {
		if err := first.store.Renew(f.ctx, s, lease); err != nil {
			f.Fatalf("renew: %v", err)
		}
	}
	f.age(lease / 2)
	f.age(lease / 4)
	if got := f.acquire(f.d, "second", 1000); len(got) != 0 {
		f.Errorf("slots that were renewed were given away: %+v", got)
	}
	stop()
	if got := f.acquire(f.d, "second", 1000); len(got) != 0 {
		f.Errorf("slots whose lease still runs were given away because a process ended: %+v", got)
	}
	f.age(lease)
	before := map[int]int64{}
	for _, s := range first.slots {
		before[s.Number] = s.Epoch
	}
	second := f.relay(f.d, "second")
	for _, s := range second.slots {
		if s.Epoch <= before[s.Number] {
			f.Errorf("slot %d was taken over in epoch %d, it was in %d", s.Number, s.Epoch, before[s.Number])
		}
	}
	if len(second.slots) != len(first.slots) {
		f.Errorf("%d of %d lapsed slots were taken over", len(second.slots), len(first.slots))
	}
}

func zombieRelay[TTx any](f *fixture[TTx]) {
	for _, id := range []string{"held", "next"} {
		f.enqueue(f.d, message(id, "a"))
	}
	zombie := f.relay(f.d, "relay")
	zombie.hold(func(m string) *store.Hold {
		if m == "held" {
			return &store.Hold{State: store.HoldParked, Attempts: 3, Reason: "poison"}
		}
		return &store.Hold{State: store.HoldBlocked}
	})
	f.enqueue(f.d, message("waiting", "b"))
	var slot store.Slot
	var page store.Page
	f.until("a message was fetched", func() bool {
		for slot, page = range zombie.fetch(10) {
			return true
		}
		return false
	})
	heldIn := zombie.slotOf("a")
	f.age(lease + time.Minute)
	second, _ := f.open()
	owner := f.relay(second, "relay")

	refused := func(what string, err error) {
		f.Helper()
		if !errors.Is(err, store.ErrLeaseLost) {
			f.Errorf("%s by a relay that lost its slot: %v, want ErrLeaseLost", what, err)
		}
	}
	refused("advance", zombie.store.Advance(f.ctx, slot, page, nil))
	refused("advance with a hold", zombie.store.Advance(f.ctx, slot, page,
		[]store.Hold{{Message: page.Messages[0], State: store.HoldParked, Attempts: 1}}))
	refused("renew", zombie.store.Renew(f.ctx, slot, lease))
	for _, state := range []store.HoldState{store.HoldDelivered, store.HoldRetry} {
		refused("update", zombie.store.Update(f.ctx, heldIn, []store.Hold{{Message: message("held", "a"), State: state, Attempts: 4}}))
	}
	owner.wantBacklog(store.Backlog{Waiting: 1, Blocked: 1, Parked: 1})
	owner.wantDue()
	if got := idsOf(owner.drain(1, 10)); len(got) != 1 || got[0] != "waiting" {
		f.Errorf("the new owner fetched %q, want the message that the former one had fetched", got)
	}
}

func releaseLost[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	lost := f.relay(f.d, "relay")
	f.age(lease + time.Minute)
	owner := f.relay(second, "relay")
	for _, s := range lost.slots {
		if err := lost.store.Release(f.ctx, s); err != nil {
			f.Errorf("releasing a slot that was lost: %v", err)
		}
	}
	if got := f.acquire(f.d, "third", 1000); len(got) != 0 {
		f.Errorf("slots were taken from their owner by a release of a former one: %+v", got)
	}
	for _, s := range owner.slots {
		if err := owner.store.Renew(f.ctx, s, lease); err != nil {
			f.Errorf("the owner can't renew: %v", err)
		}
	}
	err := f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error { return f.d.Enqueue(ctx, tx, message("m", "a")) })
	if err != nil {
		f.Fatalf("transact: %v", err)
	}
	owner.wantDelivered("m")
}
