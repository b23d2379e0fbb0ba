// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// deliver confirms one page.
func deliver(t *testing.T, f *fixture, limit int) int {
	t.Helper()
	slots, err := f.Relay().Acquire(t.Context(), "me", time.Nanosecond, 1)
	if err != nil || len(slots) != 1 {
		t.Fatal(slots, err)
	}
	p, err := f.Relay().Fetch(t.Context(), slots[0], limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Relay().Advance(t.Context(), slots[0], p, nil); err != nil {
		t.Fatal(err)
	}
	return len(p.Messages)
}

func enqueue(t *testing.T, f *fixture, n int) {
	t.Helper()
	err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for i := range n {
			if err := f.Enqueue(ctx, tx, message(fmt.Sprint("m", i), "")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, f *fixture) (store.Relay, store.Slot) {
	t.Helper()
	r := f.Relay()
	slots, err := r.Acquire(t.Context(), "me", time.Hour, 1)
	if err != nil || len(slots) != 1 {
		t.Fatal(slots, err)
	}
	return r, slots[0]
}

func TestAdvance(t *testing.T) {
	t.Parallel()

	t.Run("messages go with their delivery, and with nothing else", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		enqueue(t, f, 70) // more than one INSERT
		if n := deliver(t, f, 30); n != 30 {
			t.Fatalf("fetched %d", n)
		}
		if n := f.count("SELECT count(*) FROM reprise_outbox"); n != 40 {
			t.Errorf("%d messages are left, want the 40 that wait", n)
		}
		if b, err := f.Relay().Backlog(t.Context()); err != nil || b.Waiting != 40 || b.Oldest.IsZero() {
			t.Errorf("backlog %+v, %v", b, err)
		}
	})

	t.Run("the id of a deleted message is not given out again", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		for range 3 {
			enqueue(t, f, 1)
			if n := deliver(t, f, 10); n != 1 {
				t.Fatalf("fetched %d; the cursor passed over a message", n)
			}
		}
	})

	t.Run("messages stay for their retention, and go in chunks afterwards", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{DeliveredRetention: time.Hour})
		enqueue(t, f, deleteChunk+100)
		for deliver(t, f, 200) > 0 {
		}
		if n := f.count("SELECT count(*) FROM reprise_outbox"); n != deleteChunk+100 {
			t.Errorf("%d messages, want all within their retention", n)
		}
		if b, err := f.Relay().Backlog(t.Context()); err != nil || b.Waiting != 0 || !b.Oldest.IsZero() {
			t.Errorf("backlog %+v, %v", b, err)
		}
		if _, err := f.db.Exec("UPDATE reprise_outbox SET message_id = 'old ' || message_id, enqueued_at = enqueued_at - 3600000000"); err != nil {
			t.Fatal(err)
		}
		enqueue(t, f, 2) // new, and kept for an hour
		for i, want := range []int{102, 2} {
			deliver(t, f, 1)
			if n := f.count("SELECT count(*) FROM reprise_outbox"); n != want {
				t.Errorf("%d messages after %d deliveries, want %d", n, i+1, want)
			}
		}
	})

	t.Run("a message that can't be read is parked as it is", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		enqueue(t, f, 3)
		if _, err := f.db.Exec("UPDATE reprise_outbox SET header = '{broken' WHERE message_id = 'm1'"); err != nil {
			t.Fatal(err)
		}
		r, slot := acquire(t, f)
		p, err := r.Fetch(t.Context(), slot, 10)
		if err != nil || len(p.Messages) != 3 || len(p.Unreadable) != 1 || p.Unreadable[1] == nil || p.Messages[1].ID != "m1" {
			t.Fatalf("page %+v, %v", p, err)
		}
		hold := []store.Hold{{Message: p.Messages[1], State: store.HoldParked, Reason: "unreadable"}}
		if err := r.Advance(t.Context(), slot, p, hold); err != nil {
			t.Fatal(err)
		}
		if n := f.count("SELECT count(*) FROM reprise_outbox_hold WHERE header = '{broken' AND state = 'parked'"); n != 1 {
			t.Error("the stored row was not kept as it is")
		}
	})

	t.Run("a hold that names no message of the page fails the whole", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		enqueue(t, f, 2)
		r, slot := acquire(t, f)
		p, err := r.Fetch(t.Context(), slot, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, holds := range [][]store.Hold{
			{{Message: message("m1", ""), State: store.HoldRetry}}, // behind the page
			{{Message: p.Messages[0], State: store.HoldDelivered}},
		} {
			if err := r.Advance(t.Context(), slot, p, holds); err == nil {
				t.Errorf("%+v was taken", holds)
			}
		}
		if b, err := r.Backlog(t.Context()); err != nil || b.Waiting != 2 {
			t.Errorf("backlog %+v, %v", b, err)
		}
		if err := r.Advance(t.Context(), slot, store.Page{Position: "x", Messages: p.Messages}, nil); err == nil {
			t.Error("a position was taken that Fetch never returned")
		}
	})
}

// TestMessageBytes: what is enqueued comes back byte for byte.
func TestMessageBytes(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	want := reprise.Message{
		ID: "m\x00\xff", Source: "s\xfe", Type: "t", Subject: "é\x80", Time: now(), ContentType: "application/octet-stream",
		Data: []byte{0, 255, '"'}, Header: map[string]string{"traceparent": "00-\x80é", "": "<&>\u2028"},
	}
	err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return f.Enqueue(ctx, tx, want) })
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Relay().Fetch(t.Context(), store.Slot{}, 1)
	if err != nil || len(p.Messages) != 1 {
		t.Fatal(p, err)
	}
	got := p.Messages[0]
	if got.ID != want.ID || got.Source != want.Source || got.Subject != want.Subject || !got.Time.Equal(want.Time) ||
		!bytes.Equal(got.Data, want.Data) || !maps.Equal(got.Header, want.Header) {
		t.Errorf("%+v came back as %+v", want, got)
	}
}

// TestForeignTransaction: Enqueue and Accept also serve a transaction that the
// application began itself.
func TestForeignTransaction(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx, err := f.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Enqueue(t.Context(), tx, message("m", "")); err != nil {
			t.Fatal(err)
		}
		if fresh, _, err := f.Accept(t.Context(), tx, store.Receipt{Consumer: "c", Source: "s", MessageID: "m"}); err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count("SELECT (SELECT count(*) FROM reprise_outbox) * 10 + (SELECT count(*) FROM reprise_inbox)"); n != 11 {
		t.Errorf("messages and receipts are %d, want one of each", n)
	}
}

// TestMessageIdentity: the identity of a message is taken for as long as its row
// is kept, waiting, held or retained, and free afterwards.
func TestMessageIdentity(t *testing.T) {
	t.Parallel()
	place := func(t *testing.T, f *fixture, m reprise.Message) error {
		t.Helper()
		return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return f.Enqueue(ctx, tx, m) })
	}

	t.Run("one hold is dropped by its delivery, and no other message", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := place(t, f, message("m", "")); err != nil {
			t.Fatal(err)
		}
		r, slot := acquire(t, f)
		p, err := r.Fetch(t.Context(), slot, 10)
		if err != nil {
			t.Fatal(err)
		}
		hold := store.Hold{Message: p.Messages[0], State: store.HoldRetry, Attempts: 1}
		if err := r.Advance(t.Context(), slot, p, []store.Hold{hold}); err != nil {
			t.Fatal(err)
		}
		err = place(t, f, message("m", ""))
		if !errors.Is(err, store.ErrDuplicateMessage) || !strings.Contains(err.Error(), "give each event an id of its own") {
			t.Errorf("a twin of a held message: error %v, want ErrDuplicateMessage and what to do", err)
		}
		hold.State = store.HoldDelivered
		if err := r.Update(t.Context(), slot, []store.Hold{hold}); err != nil {
			t.Fatal(err)
		}
		if b, err := r.Backlog(t.Context()); err != nil || b != (store.Backlog{}) {
			t.Errorf("backlog %+v, %v; want none", b, err)
		}
		if err := place(t, f, message("m", "")); err != nil {
			t.Errorf("once nothing is kept of the first: %v", err)
		}
	})

	t.Run("a delivered message keeps its identity for its retention", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{DeliveredRetention: time.Hour})
		if err := place(t, f, message("m", "")); err != nil {
			t.Fatal(err)
		}
		if n := deliver(t, f, 10); n != 1 {
			t.Fatalf("%d delivered, want 1", n)
		}
		if err := place(t, f, message("m", "")); !errors.Is(err, store.ErrDuplicateMessage) {
			t.Errorf("error %v, want ErrDuplicateMessage", err)
		}
	})

	t.Run("a twin fails alone in a shared commit", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := place(t, f, message("m", "")); err != nil {
			t.Fatal(err)
		}
		var refused, kept atomic.Int32
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() {
				id := fmt.Sprint("other", n)
				if n%2 == 0 {
					id = "m"
				}
				switch err := place(t, f, message(id, "")); {
				case err == nil:
					kept.Add(1)
				case errors.Is(err, store.ErrDuplicateMessage):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := f.count("SELECT count(*) FROM reprise_outbox"); n != 11 || kept.Load() != 10 || refused.Load() != 10 {
			t.Errorf("%d rows, %d kept, %d refused; want 11, 10, 10", n, kept.Load(), refused.Load())
		}
	})
}
