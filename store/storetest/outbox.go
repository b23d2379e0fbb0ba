// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func outboxRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"O1_messages_are_kept_in_the_order_they_were_enqueued",
			"All messages of one transaction are written with it, in the order in which they were enqueued.",
			enqueuedOrder[TTx],
		},
		{
			"O1_messages_join_a_transaction_of_the_application",
			"Enqueue joins a transaction that is not the driver's: its messages are committed or rolled back with it.",
			foreignTransaction[TTx],
		},
		{
			"O1_rolled_back_messages_never_appear",
			"Messages of a transaction that was rolled back are never fetched, counted or announced.",
			rolledBackNeverAppear[TTx],
		},
		{
			"O2_message_survives_byte_for_byte",
			"Every attribute of a message comes out as it was enqueued: a redelivery is recognised by them.",
			messageSurvives[TTx],
		},
		{
			"O3_late_commit_is_not_skipped",
			"A message whose transaction commits after later ones were fetched is still fetched.",
			lateCommit[TTx],
		},
		{
			"O3_fetch_moves_nothing",
			"Fetch returns the same messages until they are advanced over: a relay that dies after fetching loses nothing.",
			fetchMovesNothing[TTx],
		},
		{
			"O3_no_committed_message_is_lost",
			"Under concurrent writers in two processes, small pages, and a restart, every committed message is fetched, once.",
			nothingIsLost[TTx],
		},
		{
			"O5_order_of_a_subject_is_the_order_of_its_commits",
			"Messages of one subject are fetched in the order in which their transactions committed.",
			subjectOrder[TTx],
		},
		{
			"O3_wake_follows_the_commit",
			"Wake receives a value after a transaction with messages has committed, never before and not for a rollback; unread values never block a commit.",
			wakeFollows[TTx],
		},
		{
			"O3_every_relay_is_woken",
			"Every relay of a process is woken by a commit: one that has no slot does not take the value from one that has.",
			everyRelayIsWoken[TTx],
		},
	}
}

// message returns a complete message.
func message(id, subject string) reprise.Message {
	return reprise.Message{
		ID: id, Source: "/shop", Type: "order.created", Subject: subject,
		Time:        time.Date(2026, 2, 3, 4, 5, 6, 789_012_000, time.UTC),
		ContentType: "application/json",
		Data:        []byte(`{"id":"` + id + `"}`),
	}
}

// enqueue commits messages in a transaction of their own.
func (f *fixture[TTx]) enqueue(d store.Driver[TTx], messages ...reprise.Message) {
	f.Helper()
	err := again(f.ctx, func() error {
		return d.Transact(f.ctx, func(ctx context.Context, tx TTx) error { return d.Enqueue(ctx, tx, messages...) })
	})
	if err != nil {
		f.Fatalf("committing %d messages: %v", len(messages), err)
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func sameMessage(a, b reprise.Message) bool {
	return a.ID == b.ID && a.Source == b.Source && a.Type == b.Type && a.Subject == b.Subject &&
		a.Time.Equal(b.Time) && a.ContentType == b.ContentType && bytes.Equal(a.Data, b.Data) && maps.Equal(a.Header, b.Header)
}

// show describes a message in a line of bounded length.
func show(m reprise.Message) string {
	data := m.Data
	m.Data = nil
	return fmt.Sprintf("%+v with %d bytes %.40q", m, len(data), data)
}

func enqueuedOrder[TTx any](f *fixture[TTx]) {
	const transactions, each = 3, 250
	var want []string
	for n := range transactions {
		err := f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
			for i := range each {
				// Ids whose order is not that of enqueueing.
				m := message(fmt.Sprintf("%03d-%d", (i*7)%each, n), "subject")
				want = append(want, m.ID)
				if err := f.d.Enqueue(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			f.Fatalf("transact: %v", err)
		}
	}
	if got := idsOf(f.relay(f.d, "relay").drain(len(want), 100)); !slices.Equal(got, want) {
		f.Errorf("%d messages came out in another order than they were enqueued in", len(got))
	}
}

func foreignTransaction[TTx any](f *fixture[TTx]) {
	for _, commit := range []bool{false, true} {
		tx, err := f.plain.Begin(f.ctx)
		if err != nil {
			f.Fatalf("begin a plain transaction: %v", err)
		}
		name := fmt.Sprintf("foreign-%t", commit)
		if err := f.effect(f.ctx, tx, name); err != nil {
			f.Fatalf("effect in a plain transaction: %v", err)
		}
		if err := f.d.Enqueue(f.ctx, tx, message(name, "subject"), message(name+"-2", "subject")); err != nil {
			f.Fatalf("enqueue in a plain transaction: %v", err)
		}
		end := f.plain.Rollback
		if commit {
			end = f.plain.Commit
		}
		if err := end(f.ctx, tx); err != nil {
			f.Fatalf("end of a plain transaction: %v", err)
		}
	}
	f.wantEffects("foreign-true", 1)
	f.relay(f.d, "relay").wantDelivered("foreign-true", "foreign-true-2")
}

func rolledBackNeverAppear[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	for n := range 5 {
		_, err := call(func() error {
			return f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
				if err := f.d.Enqueue(ctx, tx, message(fmt.Sprintf("ghost-%d", n), "subject")); err != nil {
					return err
				}
				if n%2 == 0 {
					panic(errHandler)
				}
				return errHandler
			})
		})
		if n%2 == 1 && !errors.Is(err, errHandler) {
			f.Fatalf("the failing transaction: %v", err)
		}
	}
	r := f.relay(second, "relay")
	r.wantBacklog(store.Backlog{})
	f.enqueue(f.d, message("real", "subject"))
	r.wantBacklog(store.Backlog{Waiting: 1})
	r.wantDelivered("real")
}

// messages are what an outbox must be able to carry.
func messages() []reprise.Message {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	odd := reprise.Message{
		ID: "é \"'; -- \\ %", Source: "https://shop.example/a?b=c#d", Type: "com.example.order.created", Subject: "órder/1 ",
		Time:        time.Date(1999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		ContentType: "application/octet-stream; x=\"y\"",
		Data:        every,
		Header: map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "empty": "", "Case": "a", "case": "b",
			"text": "€ ☃ \"quoted\"\n",
		},
	}
	bare := message("bare", "")
	bare.Data, bare.ContentType = nil, ""
	big := message("big", strings.Repeat("s", 255))
	big.Data = bytes.Repeat([]byte("\x00\xff0123456789abcde"), 16<<10)
	future := message("future", "FUTURE")
	future.Time = time.Date(2999, 1, 1, 0, 0, 0, 1000, time.UTC)
	empty := message("empty", "future")
	empty.Data, empty.Header = []byte{}, map[string]string{}
	return []reprise.Message{odd, bare, big, future, empty, message("composed", "\u00e9"), message("decomposed", "e\u0301")}
}

func messageSurvives[TTx any](f *fixture[TTx]) {
	second, stop := f.open()
	want := messages()
	f.enqueue(second, want...)
	stop()
	next, _ := f.open()
	r := f.relay(next, "relay")
	byID := map[string]reprise.Message{}
	for _, p := range r.fetch(100) {
		for _, m := range p.Messages {
			byID[m.ID] = m
		}
	}
	for _, m := range want {
		if got, ok := byID[m.ID]; !ok {
			f.Errorf("message %q is gone", m.ID)
		} else if !sameMessage(got, m) {
			f.Errorf("message %q came out as %s, want %s", m.ID, show(got), show(m))
		}
	}
}

// lateCommit holds a transaction open while others of the same subject and of
// other ones commit, where the database can do so.
func lateCommit[TTx any](f *fixture[TTx]) {
	drivers := f.both()
	r := f.relay(drivers[1], "relay")
	enqueued, release, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	enter, free := sync.OnceFunc(func() { close(enqueued) }), sync.OnceFunc(func() { close(release) })
	f.Cleanup(free)
	go func() {
		defer enter()
		late <- f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
			err := f.d.Enqueue(ctx, tx, message("late", "late-subject"))
			enter()
			<-release
			return err
		})
	}()
	<-enqueued
	var wg sync.WaitGroup
	committed := make(chan struct{})
	for n := range 8 {
		wg.Go(func() {
			m := message(fmt.Sprintf("early-%d", n), fmt.Sprintf("subject-%d", n%3))
			err := again(f.ctx, func() error {
				return drivers[n%2].Transact(f.ctx, func(ctx context.Context, tx TTx) error { return drivers[n%2].Enqueue(ctx, tx, m) })
			})
			if err != nil {
				f.Errorf("a transaction beside the late one: %v", err)
			}
		})
	}
	go func() { wg.Wait(); close(committed) }()
	// A database with one writer makes the others wait; then there is nothing to skip.
	var got []string
	select {
	case <-committed:
		got = idsOf(r.drain(8, 3))
	case <-time.After(grace):
	}
	free()
	if err := <-late; err != nil {
		f.Errorf("the late transaction: %v", err)
	}
	<-committed
	got = append(got, idsOf(r.drain(9-len(got), 3))...)
	want := []string{"early-0", "early-1", "early-2", "early-3", "early-4", "early-5", "early-6", "early-7", "late"}
	if !slices.Equal(sorted(got), want) {
		f.Errorf("the messages are %q, want %q", got, want)
	}
}

func fetchMovesNothing[TTx any](f *fixture[TTx]) {
	for n := range 20 {
		f.enqueue(f.d, message(fmt.Sprintf("m-%d", n), fmt.Sprintf("subject-%d", n%3)))
	}
	r := f.relay(f.d, "relay")
	first := r.fetch(5)
	for range 3 {
		for slot, p := range r.fetch(5) {
			if !slices.Equal(idsOf(p.Messages), idsOf(first[slot].Messages)) {
				f.Errorf("fetched again, slot %d has %q, want %q", slot.Number, idsOf(p.Messages), idsOf(first[slot].Messages))
			}
		}
	}
	r.wantBacklog(store.Backlog{Waiting: 20})
	if got := len(r.drain(20, 7)); got != 20 {
		f.Errorf("%d messages were fetched, want 20", got)
	}
	if got := r.fetch(7); len(got) != 0 {
		f.Errorf("after they were advanced over, %v are fetched again", got)
	}
}

func nothingIsLost[TTx any](f *fixture[TTx]) {
	const writers, each = 6, 20
	drivers := f.both()
	taker, stop := f.open()
	var wg sync.WaitGroup
	var want []string
	for n := range writers {
		for i := range each {
			want = append(want, fmt.Sprintf("m-%d-%d", n, i))
		}
		wg.Go(func() {
			for i := range each {
				err := again(f.ctx, func() error {
					return drivers[n%2].Transact(f.ctx, func(ctx context.Context, tx TTx) error {
						m := message(fmt.Sprintf("m-%d-%d", n, i), []string{"", "a", "b", "c"}[n%4])
						return errors.Join(drivers[n%2].Enqueue(ctx, tx, m), f.effect(ctx, tx, m.ID))
					})
				})
				if err != nil {
					f.Errorf("writer %d: %v", n, err)
				}
			}
		})
	}
	first := f.relay(taker, "first")
	got := idsOf(first.drain(writers*each/3, 3))
	stop()
	wg.Wait()
	f.age(lease + time.Minute)
	next, _ := f.open()
	got = append(got, idsOf(f.relay(next, "next").drain(len(want)-len(got), 7))...)
	if !slices.Equal(sorted(got), sorted(want)) {
		f.Errorf("%d messages were committed, and these were fetched: %q", len(want), got)
	}
}

// subjectOrder numbers transactions by a row that all of them update, so that
// the numbers are in the order of the commits.
func subjectOrder[TTx any](f *fixture[TTx]) {
	const writers, each = 6, 15
	drivers := f.both()
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range each {
				err := again(f.ctx, func() error {
					return drivers[n%2].Transact(f.ctx, func(ctx context.Context, tx TTx) error {
						if err := f.plain.Exec(ctx, tx, "UPDATE storetest_counter SET n = n + 1"); err != nil {
							return err
						}
						number, err := f.plain.Count(ctx, tx, "SELECT n FROM storetest_counter")
						if err != nil {
							return err
						}
						m := message(fmt.Sprintf("m-%d-%d", n, i), []string{"a", "b"}[i%2])
						m.Data = binary.BigEndian.AppendUint64(nil, uint64(number))
						return drivers[n%2].Enqueue(ctx, tx, m)
					})
				})
				if err != nil {
					f.Errorf("writer %d: %v", n, err)
				}
			}
		})
	}
	r := f.relay(f.d, "relay")
	last := map[string]uint64{}
	for _, m := range r.drain(writers*each, 4) {
		number := binary.BigEndian.Uint64(m.Data)
		if number <= last[m.Subject] {
			f.Errorf("subject %s: commit %d is fetched after commit %d", m.Subject, number, last[m.Subject])
		}
		last[m.Subject] = number
	}
	wg.Wait()
	if r.wantDelivered(); max(last["a"], last["b"]) != writers*each {
		f.Errorf("%d commits were numbered, want %d", max(last["a"], last["b"]), writers*each)
	}
}

func wakeFollows[TTx any](f *fixture[TTx]) {
	r := f.relay(f.d, "relay")
	wake := r.store.Wake()
	quiet := func(what string) {
		f.Helper()
		select {
		case <-wake:
			f.Errorf("wake fired %s", what)
		default:
		}
	}
	err := f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
		return errors.Join(errHandler, f.d.Enqueue(ctx, tx, message("ghost", "subject")))
	})
	if !errors.Is(err, errHandler) {
		f.Fatalf("the failing transaction: %v", err)
	}
	f.mustExecute(f.d, intent("without-messages"))
	f.enqueue(f.d)
	quiet("though nothing was committed")
	for _, m := range modes[TTx]() {
		err := m.start(f, "wakes").run(f.ctx, func(ctx context.Context, tx TTx) error {
			if err := f.d.Enqueue(ctx, tx, message("real-"+m.name, "subject")); err != nil {
				return err
			}
			quiet("before the commit")
			return nil
		})
		if err != nil {
			f.Fatalf("%s: %v", m.name, err)
		}
		select {
		case <-wake:
		case <-time.After(f.patience / 2):
			f.Fatalf("wake did not fire after the commit of %s", m.name)
		}
		if got := r.drain(1, 10); len(got) != 1 {
			f.Errorf("after wake there were %d messages, want 1", len(got))
		}
	}
	for n := range 100 {
		f.enqueue(f.d, message(fmt.Sprintf("unread-%d", n), "subject"))
	}
	r.drain(100, 100)
}

func everyRelayIsWoken[TTx any](f *fixture[TTx]) {
	var relays []store.Relay
	for range 3 {
		r := f.d.Relay()
		r.Wake()
		relays = append(relays, r)
	}
	for n := range 2 {
		f.enqueue(f.d, message(fmt.Sprintf("m-%d", n), "subject"))
		for i, r := range relays {
			select {
			case <-r.Wake():
			case <-time.After(f.patience / 2):
				f.Fatalf("commit %d did not wake relay %d of %d", n+1, i+1, len(relays))
			}
		}
	}
	f.relay(f.d, "relay").wantDelivered("m-0", "m-1")
}
