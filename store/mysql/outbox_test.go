// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

// TestSubjectLock has a transaction stand between its messages and its COMMIT.
// Those of the same subject wait for it, so that their ids follow; no others do.
func TestSubjectLock(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.open(together)
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := openDB(t, b.dsn+"?innodb_lock_wait_timeout=1").BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	for name, first := range map[string][]reprise.Message{
		"one message": {event("first", "a")},
		"several":     {event("first", "a"), event("second", ""), event("third", "a")},
	} {
		holder := begin()
		if err := d.Enqueue(t.Context(), holder, first...); err != nil {
			t.Fatal(err)
		}
		for _, other := range []struct {
			message reprise.Message
			waits   bool
		}{
			{event("same", "a"), true}, {event("none", ""), false}, {event("another", "b"), false},
		} {
			tx := begin()
			err := d.Enqueue(t.Context(), tx, other.message)
			if errors.Is(err, store.ErrConflict) != other.waits || !other.waits && err != nil {
				t.Errorf("%s: beside it, a message of subject %q: %v; it should wait: %t", name, other.message.Subject, err, other.waits)
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
		if err := holder.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// TestDeliveredRetention keeps delivered messages for people to look at, and
// deletes them when their time is over; held ones stay.
func TestDeliveredRetention(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d, err := mysql.New(t.Context(), openDB(t, b.dsn+together), &mysql.Options{DeliveredRetention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	relay := d.Relay()
	slots, err := relay.Acquire(t.Context(), "relay", time.Hour, 1)
	if err != nil || len(slots) != 1 {
		t.Fatalf("%d slots, error %v", len(slots), err)
	}
	deliver := func(held string, ids ...string) {
		t.Helper()
		err := d.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			for _, id := range ids {
				if err := d.Enqueue(ctx, tx, event(id, id)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := relay.Fetch(t.Context(), slots[0], 100)
		if err != nil || len(p.Messages) != len(ids) {
			t.Fatalf("%d messages were fetched, error %v; want %d", len(p.Messages), err, len(ids))
		}
		var holds []store.Hold
		for _, m := range p.Messages {
			if m.ID == held {
				holds = append(holds, store.Hold{Message: m, State: store.HoldParked, Attempts: 1})
			}
		}
		if err := relay.Advance(t.Context(), slots[0], p, holds); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, kept int) {
		t.Helper()
		if n := b.number("SELECT COUNT(*) FROM reprise_outbox"); n != kept {
			t.Errorf("%s %d messages are kept, want %d", when, n, kept)
		}
		backlog, err := relay.Backlog(t.Context())
		if err != nil || backlog.Waiting != 0 || backlog.Parked != 1 {
			t.Errorf("%s the backlog is %+v, error %v", when, backlog, err)
		}
	}
	deliver("m-1", "m-1", "m-2", "m-3")
	want("after the delivery", 3)
	for _, s := range age(2 * time.Hour) {
		b.exec(s)
	}
	slots, err = relay.Acquire(t.Context(), "relay", time.Hour, 1) // its lease has lapsed
	if err != nil || len(slots) != 1 {
		t.Fatalf("%d slots, error %v", len(slots), err)
	}
	deliver("", "m-4")
	want("after the retention", 2) // the held one, and the one just delivered
}
