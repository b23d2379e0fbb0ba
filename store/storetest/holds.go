// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func holdRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"O6_failed_message_is_due_when_its_time_has_come",
			"A message held for a retry is due after its delay, by the clock of the database, not before; an update sets the next one.",
			retryIsDue[TTx],
		},
		{
			"O6_later_messages_of_a_held_subject_wait_in_order",
			"A blocked message is due once no earlier message of its subject is held; the subject is drained in order.",
			blockedWait[TTx],
		},
		{
			"O6_held_message_blocks_no_other_subject",
			"Subjects names exactly the subjects with held messages; messages without a subject are blocked by nothing.",
			othersPass[TTx],
		},
		{
			"O6_due_is_bounded_and_complete",
			"Due returns at most limit messages; handled batch by batch, every held message comes up once.",
			dueIsComplete[TTx],
		},
		{
			"O6_hold_survives_byte_for_byte",
			"A held message keeps every attribute, its attempts and its reason, in another process and after a restart.",
			holdSurvives[TTx],
		},
		{
			"O2_source_and_id_together_name_a_message",
			"Two messages with one id and different sources are two messages: dealing with one leaves the other alone.",
			sourceAndID[TTx],
		},
		{
			"O2_identity_is_taken_while_its_message_waits",
			"A second message of one source and id fails its transaction, whatever else is in it, and the first is delivered.",
			waitingTwin[TTx],
		},
		{
			"O2_identity_is_taken_while_its_message_is_held",
			"It fails also while the first is held, so that what becomes of one message is never done to another.",
			heldTwin[TTx],
		},
		{
			"O7_only_what_was_advanced_over_is_done",
			"Advance deals with its page only: what was delivered is gone, what was held is held, and all else is still fetched.",
			advanceIsExact[TTx],
		},
		{
			"O8_parked_message_never_expires",
			"A parked message is neither due nor purged, however old it is; it keeps its subject blocked until an operator decides.",
			parkedStays[TTx],
		},
	}
}

// hold fetches what is waiting and advances over it; decide says, by id, which
// message is held and how. It returns how many messages it dealt with.
func (r *relay[TTx]) hold(decide func(id string) *store.Hold) (n int) {
	r.f.Helper()
	for pages := r.fetch(100); len(pages) > 0; pages = r.fetch(100) {
		for slot, p := range pages {
			var holds []store.Hold
			for _, m := range p.Messages {
				if h := decide(m.ID); h != nil {
					h.Message = m
					holds = append(holds, *h)
				}
				n++
			}
			if err := r.advance(slot, p, holds...); err != nil {
				r.f.Fatalf("advance: %v", err)
			}
		}
	}
	return n
}

// dueHold is a held message that is due, and its slot.
type dueHold struct {
	store.Hold
	slot store.Slot
}

func (r *relay[TTx]) due(limit int) (all []dueHold) {
	r.f.Helper()
	for _, slot := range r.slots {
		holds, err := r.store.Due(r.f.ctx, slot, limit)
		if err != nil {
			r.f.Fatalf("due: %v", err)
		}
		if len(holds) > limit {
			r.f.Errorf("%d messages are due, the limit is %d", len(holds), limit)
		}
		for _, h := range holds {
			all = append(all, dueHold{h, slot})
		}
	}
	return all
}

// wantDue fails unless exactly these messages are due.
func (r *relay[TTx]) wantDue(ids ...string) []dueHold {
	r.f.Helper()
	all := r.due(100)
	var got []string
	for _, h := range all {
		got = append(got, h.Message.ID)
	}
	if !slices.Equal(sorted(got), sorted(ids)) {
		r.f.Fatalf("the messages %q are due, want %q", got, ids)
	}
	return all
}

// update changes one held message.
func (r *relay[TTx]) update(h dueHold, change func(h *store.Hold)) {
	r.f.Helper()
	change(&h.Hold)
	err := again(r.f.ctx, func() error { return r.store.Update(r.f.ctx, h.slot, []store.Hold{h.Hold}) })
	if err != nil {
		r.f.Fatalf("update of %q: %v", h.Message.ID, err)
	}
}

func delivered(h *store.Hold) { h.State = store.HoldDelivered }

func (r *relay[TTx]) wantSubjects(want ...string) {
	r.f.Helper()
	var got []string
	for _, slot := range r.slots {
		subjects, err := r.store.Subjects(r.f.ctx, slot)
		if err != nil {
			r.f.Fatalf("subjects: %v", err)
		}
		for s, held := range maps.All(subjects) {
			if held {
				got = append(got, s)
			}
		}
	}
	if !slices.Equal(sorted(got), sorted(want)) {
		r.f.Errorf("the subjects with held messages are %q, want %q", got, want)
	}
}

// slotOf returns the slot that holds messages of the subject.
func (r *relay[TTx]) slotOf(subject string) store.Slot {
	r.f.Helper()
	for _, slot := range r.slots {
		subjects, err := r.store.Subjects(r.f.ctx, slot)
		if err != nil {
			r.f.Fatalf("subjects: %v", err)
		}
		if subjects[subject] {
			return slot
		}
	}
	r.f.Fatalf("no slot holds messages of subject %q", subject)
	return store.Slot{}
}

func retryIsDue[TTx any](f *fixture[TTx]) {
	f.enqueue(f.d, message("m-1", "a"), message("m-2", ""))
	r := f.relay(f.d, "relay")
	start := time.Now()
	r.hold(func(id string) *store.Hold {
		return &store.Hold{State: store.HoldRetry, Attempts: 1, Delay: time.Hour, Reason: "refused " + id}
	})
	r.wantBacklog(store.Backlog{Retry: 2})
	r.wantDue()
	f.age(time.Hour - time.Minute)
	r.wantDue()
	f.age(2 * time.Minute)
	for _, h := range r.wantDue("m-1", "m-2") {
		if h.State != store.HoldRetry || h.Attempts != 1 || h.Reason != "refused "+h.Message.ID {
			f.Errorf("the due message %s is held as %s after %d attempts: %q", show(h.Message), h.State, h.Attempts, h.Reason)
		}
		if got := h.NextAt.Sub(start) + time.Minute; got < -usualPatience || got > usualPatience {
			f.Errorf("the message was to be tried %s after its time", got)
		}
		r.update(h, func(h *store.Hold) { h.Attempts, h.Delay, h.Reason = 2, 3*time.Hour, "refused again" })
	}
	r.wantDue()
	f.age(2 * time.Hour)
	r.wantDue()
	f.age(2 * time.Hour)
	for _, h := range r.wantDue("m-1", "m-2") {
		if h.State != store.HoldRetry || h.Attempts != 2 || h.Reason != "refused again" {
			f.Errorf("after its second attempt message %q is held as %s after %d attempts: %q", h.Message.ID, h.State, h.Attempts, h.Reason)
		}
		r.update(h, delivered)
	}
	f.age(24 * time.Hour)
	r.wantDue()
	r.wantSubjects()
	r.wantBacklog(store.Backlog{})
}

func blockedWait[TTx any](f *fixture[TTx]) {
	f.enqueue(f.d, message("m-1", "a"), message("m-2", "a"))
	f.enqueue(f.d, message("m-3", "a"))
	r := f.relay(f.d, "relay")
	r.hold(func(id string) *store.Hold {
		if id == "m-1" {
			return &store.Hold{State: store.HoldRetry, Attempts: 1, Delay: time.Hour}
		}
		return &store.Hold{State: store.HoldBlocked}
	})
	f.enqueue(f.d, message("m-0", "a"))
	r.hold(func(string) *store.Hold { return &store.Hold{State: store.HoldBlocked} })
	r.wantBacklog(store.Backlog{Retry: 1, Blocked: 3})
	r.wantDue()
	r.wantSubjects("a")
	f.age(2 * time.Hour)
	first := r.wantDue("m-1")[0]
	r.update(first, func(h *store.Hold) { h.Attempts, h.Delay = 2, time.Hour })
	r.wantDue()
	f.age(2 * time.Hour)
	r.update(r.wantDue("m-1")[0], delivered)
	for _, id := range []string{"m-2", "m-3", "m-0"} {
		r.wantSubjects("a")
		r.update(r.wantDue(id)[0], delivered)
	}
	r.wantDue()
	r.wantSubjects()
	r.wantBacklog(store.Backlog{})
}

func othersPass[TTx any](f *fixture[TTx]) {
	f.enqueue(f.d, message("a-1", "a"), message("A-1", "A"), message("b-1", "b"), message("none-1", ""), message("none-2", ""))
	r := f.relay(f.d, "relay")
	r.hold(func(id string) *store.Hold {
		switch id {
		case "a-1", "none-1":
			return &store.Hold{State: store.HoldParked, Attempts: 1}
		case "none-2":
			return &store.Hold{State: store.HoldBlocked}
		}
		return nil
	})
	r.wantSubjects("a")
	r.wantBacklog(store.Backlog{Parked: 2, Blocked: 1})
	r.update(r.wantDue("none-2")[0], delivered)
	f.enqueue(f.d, message("b-2", "b"), message("none-3", ""), message("a-2", "a"))
	got := 0
	f.until("the new messages were fetched", func() bool {
		got += r.hold(func(id string) *store.Hold {
			if id == "a-2" {
				return &store.Hold{State: store.HoldBlocked}
			}
			return nil
		})
		return got == 3
	})
	r.wantDue()
	r.wantBacklog(store.Backlog{Parked: 2, Blocked: 1})
}

func dueIsComplete[TTx any](f *fixture[TTx]) {
	const subjects, each = 7, 3
	for n := range subjects * each {
		f.enqueue(f.d, message(fmt.Sprintf("m-%02d", n), fmt.Sprintf("subject-%d", n%subjects)))
	}
	r := f.relay(f.d, "relay")
	r.hold(func(id string) *store.Hold {
		if id < fmt.Sprintf("m-%02d", subjects) {
			return &store.Hold{State: store.HoldRetry, Attempts: 1}
		}
		return &store.Hold{State: store.HoldBlocked}
	})
	last := map[string]string{}
	handled := 0
	for batch := r.due(2); len(batch) > 0; batch = r.due(2) {
		for _, h := range batch {
			if h.Message.ID <= last[h.Message.Subject] {
				f.Errorf("%q of %q is due after %q", h.Message.ID, h.Message.Subject, last[h.Message.Subject])
			}
			last[h.Message.Subject] = h.Message.ID
			r.update(h, delivered)
			handled++
		}
	}
	if handled != subjects*each {
		f.Errorf("%d held messages came up, want %d", handled, subjects*each)
	}
	r.wantBacklog(store.Backlog{})
}

func holdSurvives[TTx any](f *fixture[TTx]) {
	want := map[string]reprise.Message{}
	for _, m := range messages() {
		want[m.ID] = m
		f.enqueue(f.d, m)
	}
	reason := func(id string) string { return strings.Repeat("é\"'\n", 200) + id }
	d, stop := f.open()
	f.relay(d, "first").hold(func(id string) *store.Hold {
		return &store.Hold{State: store.HoldRetry, Attempts: len(id), Reason: reason(id)}
	})
	stop()
	f.age(lease + time.Minute)
	next, _ := f.open()
	r := f.relay(next, "next")
	for _, h := range r.wantDue(slices.Collect(maps.Keys(want))...) {
		if !sameMessage(h.Message, want[h.Message.ID]) {
			f.Errorf("held, message %q came out as %s", h.Message.ID, show(h.Message))
		}
		if h.Attempts != len(h.Message.ID) || h.Reason != reason(h.Message.ID) {
			f.Errorf("held, message %q has %d attempts and reason %.300q", h.Message.ID, h.Attempts, h.Reason)
		}
		r.update(h, func(h *store.Hold) { h.Attempts++ })
	}
	for _, h := range r.wantDue(slices.Collect(maps.Keys(want))...) {
		if !sameMessage(h.Message, want[h.Message.ID]) {
			f.Errorf("after an update message %q came out as %s", h.Message.ID, show(h.Message))
		}
		if h.Attempts != len(h.Message.ID)+1 {
			f.Errorf("after an update message %q has %d attempts", h.Message.ID, h.Attempts)
		}
	}
}

func advanceIsExact[TTx any](f *fixture[TTx]) {
	const count = 12
	for n := range count {
		f.enqueue(f.d, message(fmt.Sprintf("m-%02d", n), "a"))
	}
	r := f.relay(f.d, "relay")
	var want []string
	for n := range count / 4 {
		f.enqueue(f.d, message(fmt.Sprintf("n-%02d", n), "a"))
		for slot, p := range r.fetch(4) {
			for i := range p.Messages {
				if id := fmt.Sprintf("m-%02d", 4*n+i); p.Messages[i].ID != id {
					f.Fatalf("message %d is %q, want %q", 4*n+i, p.Messages[i].ID, id)
				}
			}
			held := store.Hold{Message: p.Messages[1], State: store.HoldParked, Attempts: 1}
			if n > 0 {
				held.State = store.HoldBlocked
			}
			if err := r.advance(slot, p, held); err != nil {
				f.Fatalf("advance: %v", err)
			}
		}
		r.wantBacklog(store.Backlog{Waiting: count - 4*(n+1) + n + 1, Parked: 1, Blocked: n})
		want = append(want, fmt.Sprintf("n-%02d", n))
	}
	if got := idsOf(r.drain(len(want), 10)); !slices.Equal(got, want) {
		f.Errorf("after the pages %q are fetched, want %q", got, want)
	}
}

func parkedStays[TTx any](f *fixture[TTx]) {
	f.enqueue(f.d, message("m-1", "a"), message("m-2", "a"))
	d, stop := f.open()
	f.relay(d, "first").hold(func(id string) *store.Hold {
		if id == "m-1" {
			return &store.Hold{State: store.HoldParked, Attempts: 10, Reason: "poison"}
		}
		return &store.Hold{State: store.HoldBlocked}
	})
	stop()
	f.age(10 * 365 * 24 * time.Hour)
	next, _ := f.open()
	f.purge(next)
	if _, err := next.PurgeInbox(f.ctx, time.Hour, 100); err != nil {
		f.Fatalf("purge inbox: %v", err)
	}
	r := f.relay(next, "next")
	r.wantDue()
	r.wantSubjects("a")
	r.wantBacklog(store.Backlog{Parked: 1, Blocked: 1})
	released := dueHold{store.Hold{Message: message("m-1", "a"), State: store.HoldRetry, Attempts: 10}, r.slotOf("a")}
	r.update(released, func(*store.Hold) {})
	h := r.wantDue("m-1")[0]
	if h.Attempts != 10 || !sameMessage(h.Message, message("m-1", "a")) {
		f.Errorf("the released message is %s after %d attempts", show(h.Message), h.Attempts)
	}
	r.update(h, delivered)
	r.update(r.wantDue("m-2")[0], delivered)
	r.wantBacklog(store.Backlog{})
}

func sourceAndID[TTx any](f *fixture[TTx]) {
	shop, depot := message("m-1", "a"), message("m-1", "a")
	depot.Source = "/depot"
	f.enqueue(f.d, shop, depot)
	r := f.relay(f.d, "relay")
	if n := r.hold(func(string) *store.Hold { return &store.Hold{State: store.HoldRetry, Attempts: 1} }); n != 2 {
		f.Fatalf("%d messages were fetched, want 2", n)
	}
	all := r.wantDue("m-1", "m-1")
	r.update(all[0], func(h *store.Hold) { h.State, h.Attempts, h.Reason = store.HoldParked, 7, "poison" })
	left := r.wantDue("m-1")[0]
	if left.Message.Source == all[0].Message.Source || left.Attempts != 1 {
		f.Errorf("after an update of the message of %s, that of %s is due with %d attempts",
			all[0].Message.Source, left.Message.Source, left.Attempts)
	}
	r.update(left, delivered)
	r.wantBacklog(store.Backlog{Parked: 1})
}
