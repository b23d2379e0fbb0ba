// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/postgres"
)

// drain takes what there is now, by pages of limit.
func (f *fixture) drain(r store.Relay, slot store.Slot, limit int) (ids []string) {
	f.t.Helper()
	for {
		p, err := r.Fetch(f.ctx, slot, limit)
		if err != nil {
			f.t.Fatalf("fetch: %v", err)
		}
		if len(p.Messages) == 0 {
			return ids
		}
		for _, m := range p.Messages {
			ids = append(ids, m.ID)
		}
		if err := r.Advance(f.ctx, slot, p, nil); err != nil {
			f.t.Fatalf("advance: %v", err)
		}
	}
}

// relay acquires the slot.
func (f *fixture) relay() (store.Relay, store.Slot) {
	f.t.Helper()
	r := f.Relay()
	slots, err := r.Acquire(f.ctx, "relay", time.Hour, 10)
	if err != nil || len(slots) != 1 {
		f.t.Fatalf("acquired %+v, error %v", slots, err)
	}
	return r, slots[0]
}

// foreign begins a transaction of the application's with one message in it.
func (f *fixture) foreign(id, subject string) *sql.Tx {
	f.t.Helper()
	tx, err := f.plain.BeginTx(f.ctx, nil)
	if err == nil {
		err = f.Enqueue(f.ctx, tx, message(id, subject))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (f *fixture) mustCommit(tx *sql.Tx) {
	f.t.Helper()
	if err := tx.Commit(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) wantIDs(what string, got []string, want ...string) {
	f.t.Helper()
	if !slices.Equal(got, want) {
		f.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestLowerIDCommitsLater: an id that is committed after a higher one was read is
// read all the same, and an open writer holds nobody up.
func TestLowerIDCommitsLater(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	r, slot := f.relay()
	late := f.foreign("late", "a")
	later := f.foreign("later", "b")
	gone := f.foreign("gone", "c")
	f.enqueue(message("early", "d"))
	f.wantIDs("beside open writers", f.drain(r, slot, 10), "early")
	_ = gone.Rollback()
	f.mustCommit(later)
	f.enqueue(message("next", "d"))
	f.wantIDs("beside one that is still open", f.drain(r, slot, 1), "later", "next")
	f.enqueue(message("last", "d"))
	f.wantIDs("before the first one commits", f.drain(r, slot, 10), "last")
	f.mustCommit(late)
	f.wantIDs("after it has", f.drain(r, slot, 10), "late")
	f.wantIDs("at last", f.drain(r, slot, 10))
	if n := f.count("SELECT count(*) FROM reprise_outbox"); n != 0 {
		t.Errorf("%d delivered messages are left", n)
	}
}

// TestTransactionIsNumberedBeforeItsTurn: a transaction that got its number first
// commits second. By number its message would come first.
func TestTransactionIsNumberedBeforeItsTurn(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	r, slot := f.relay()
	tx, err := f.plain.BeginTx(f.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(f.ctx, "INSERT INTO orders (ref) VALUES ('numbered')"); err != nil {
		t.Fatal(err)
	}
	f.enqueue(message("first", "a"))
	if err := f.Enqueue(f.ctx, tx, message("second", "a")); err != nil {
		t.Fatal(err)
	}
	f.mustCommit(tx)
	if f.count("SELECT count(*) FROM reprise_outbox AS a JOIN reprise_outbox AS b ON a.id < b.id AND a.xid > b.xid") != 1 {
		t.Fatal("the numbers are in the order of the commits: nothing was tested")
	}
	f.wantIDs("one subject", f.drain(r, slot, 1), "first", "second")
}

// TestNothingIsLost runs writers that commit, roll back, dawdle, use savepoints
// and begin early beside a relay with small pages that is replaced again and again.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.exec("CREATE TABLE truth (n bigserial, subject text, id text)")
	const writers, each = 8, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := f.write(fmt.Sprintf("%d-%d", w, i), fmt.Sprintf("subject-%d", rand.N(3)), rand.N(20)); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()

	var got []string
	r, slot := f.relay()
	for n, over := 0, false; !over; n++ {
		select {
		case <-done:
			over = true
		default:
		}
		if n%5 == 4 { // another process takes over, without a memory
			if err := r.Release(f.ctx, slot); err != nil {
				t.Fatal(err)
			}
			r, slot = f.relay()
		}
		got = append(got, f.drain(r, slot, 7)...)
	}
	place := map[string]int{}
	for i, id := range got {
		if _, twice := place[id]; twice {
			t.Errorf("message %s came twice", id)
		}
		place[id] = i
	}
	rows, err := f.plain.QueryContext(f.ctx, "SELECT subject, id FROM truth ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	committed, last := 0, map[string]int{}
	for rows.Next() {
		var subject, id string
		if err := rows.Scan(&subject, &id); err != nil {
			t.Fatal(err)
		}
		at, ok := place[id]
		if !ok {
			t.Errorf("message %s was lost", id)
		} else if committed++; at < last[subject] {
			t.Errorf("message %s of %s came before one that was committed earlier", id, subject)
		}
		last[subject] = at
	}
	if err := rows.Err(); err != nil || committed != len(got) || committed == 0 {
		t.Errorf("%d messages came, %d were committed, error %v", len(got), committed, err)
	}
}

// write runs one transaction of a writer. truth has the order of commits: its
// number is taken under the lock of the subject, which is held until the end.
func (f *fixture) write(id, subject string, kind int) error {
	fails := kind < 3
	err := f.Transact(f.ctx, func(ctx context.Context, tx *sql.Tx) error {
		if kind%2 == 0 { // a number long before its turn
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (ref) VALUES ($1)", id); err != nil {
				return err
			}
		}
		if kind == 7 {
			time.Sleep(30 * time.Millisecond) // an open writer
		}
		// Enqueue in a transaction of the driver's takes the lock at its end, so the
		// truth takes it first.
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", subject); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO truth (subject, id) VALUES ($1, $2)", subject, id); err != nil {
			return err
		}
		if err := f.Enqueue(ctx, tx, message(id, subject)); err != nil {
			return err
		}
		if fails {
			return errHandler
		}
		return nil
	})
	if fails && errors.Is(err, errHandler) {
		return nil
	}
	return err
}

// TestPositionOutlivesTheServer: tables that were moved to a server which has
// not come so far mean nothing by their snapshots.
func TestPositionOutlivesTheServer(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	r, slot := f.relay()
	f.enqueue(message("m-1", "a"), message("m-2", "a"), message("m-3", "a"))
	p, err := r.Fetch(f.ctx, slot, 2)
	if err == nil {
		err = r.Advance(f.ctx, slot, p, []store.Hold{{Message: p.Messages[0], State: store.HoldParked}})
	}
	if err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE reprise_outbox_position SET seen = '9000000000:9000000001:9000000000', upto = '9000000000:9000000002:'")
	if b, err := r.Backlog(f.ctx); err != nil || b.Waiting != 1 || b.Parked != 1 {
		t.Errorf("backlog %+v, error %v; want one waiting and one parked", b, err)
	}
	next := mustNew(t, f.db, nil).Relay()
	f.wantIDs("after the move", f.drain(next, slot, 10), "m-3")
	f.enqueue(message("m-4", "a"))
	f.wantIDs("later", f.drain(next, slot, 10), "m-4")
}

// TestPageIsAdvancedOnce: a page that was recorded can't be recorded again.
func TestPageIsAdvancedOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	r, slot := f.relay()
	f.enqueue(message("m-1", "a"))
	p, err := r.Fetch(f.ctx, slot, 10)
	if err != nil || len(p.Messages) != 1 {
		t.Fatalf("%d messages, error %v", len(p.Messages), err)
	}
	if err := r.Advance(f.ctx, slot, p, nil); err != nil {
		t.Fatal(err)
	}
	f.enqueue(message("m-2", "a"))
	if err := r.Advance(f.ctx, slot, p, nil); err == nil {
		t.Error("the page was advanced over twice")
	}
	f.wantIDs("after that", f.drain(r, slot, 10), "m-2")
	if n := f.count("SELECT count(*) FROM reprise_outbox_position"); n != 1 {
		t.Errorf("%d positions are kept, want the last", n)
	}
}

// TestUnreadableRow spoils a header: the message comes with the reason.
func TestUnreadableRow(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	r, slot := f.relay()
	f.enqueue(message("m-1", "a"), message("m-2", "a"))
	f.exec("UPDATE reprise_outbox SET header = '{' WHERE message_id = 'm-2'")
	p, err := r.Fetch(f.ctx, slot, 10)
	if err != nil || len(p.Messages) != 2 || p.Unreadable[1] == nil || p.Messages[1].Subject != "a" {
		t.Fatalf("%+v, error %v", p, err)
	}
	if err := r.Advance(f.ctx, slot, p, []store.Hold{{Message: p.Messages[1], State: store.HoldRetry}}); err != nil {
		t.Fatal(err)
	}
	if due, err := r.Due(f.ctx, slot, 10); err != nil || len(due) != 1 || due[0].Unreadable == nil {
		t.Errorf("due %+v, error %v", due, err)
	}
}

// TestDeliveredRetention keeps delivered messages for people, and never delivers
// them again.
func TestDeliveredRetention(t *testing.T) {
	t.Parallel()
	f := setup(t, &postgres.Options{DeliveredRetention: time.Hour})
	r, slot := f.relay()
	f.enqueue(message("m-1", "a"), message("m-2", "b"))
	f.wantIDs("delivered", f.drain(r, slot, 10), "m-1", "m-2")
	if err := r.Release(f.ctx, slot); err != nil {
		t.Fatal(err)
	}
	r, slot = f.relay()
	f.wantIDs("to the next relay", f.drain(r, slot, 10))
	if b, err := r.Backlog(f.ctx); err != nil || b.Waiting != 0 || !b.Oldest.IsZero() {
		t.Errorf("backlog %+v, error %v; want nothing waiting", b, err)
	}
	err := f.Transact(f.ctx, func(ctx context.Context, tx *sql.Tx) error { return f.Enqueue(ctx, tx, message("m-1", "a")) })
	if !errors.Is(err, store.ErrDuplicateMessage) {
		t.Errorf("its identity: %v, want ErrDuplicateMessage", err)
	}
	f.exec(strings.Join(age(2*time.Hour), "; "))
	f.enqueue(message("m-3", "a"))
	f.wantIDs("then", f.drain(r, slot, 10), "m-3")
	if n := f.count("SELECT count(*) FROM reprise_outbox"); n != 1 {
		t.Errorf("%d messages are kept, want m-3 alone", n)
	}
}
