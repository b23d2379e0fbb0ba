// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/sqlite"
)

// TestSQLite: the relay on a real file, for what the two together must do.
func TestSQLite(t *testing.T) {
	t.Parallel()
	type producer struct {
		*sqlite.Driver
		db   *sql.DB
		out  *outbox.Outbox[*sql.Tx]
		sink *recorder
	}
	open := func(t *testing.T, path string) *producer {
		t.Helper()
		db, d, err := openFile(t.Context(), path, "CREATE TABLE IF NOT EXISTS business (id INTEGER)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(d.Close(), db.Close()); err != nil {
				t.Error(err)
			}
		})
		out, err := outbox.New(d, &outbox.Config{Source: "/test"})
		if err != nil {
			t.Fatal(err)
		}
		return &producer{Driver: d, db: db, out: out, sink: &recorder{}}
	}
	commit := func(t *testing.T, p *producer, messages ...reprise.Message) {
		t.Helper()
		err := p.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return p.out.Enqueue(ctx, tx, messages...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// drain runs a relay until nothing is waiting, retried or blocked.
	drain := func(t *testing.T, p *producer, c outbox.RelayConfig) store.Backlog {
		t.Helper()
		c.Logger = slog.New(slog.DiscardHandler)
		relay, err := outbox.NewRelay(p.Relay(), p.sink, &c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- relay.Run(ctx) }()
		deadline := time.Now().Add(20 * time.Second)
		for {
			b, err := relay.Backlog(t.Context())
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("backlog %+v, %v", b, err)
			}
			if b.Waiting+b.Retry == 0 && (b.Blocked == 0 || b.Parked > 0) {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return b
			}
			time.Sleep(time.Millisecond)
		}
	}

	// cyberfabric#908 (bug 17): the rows of one statement were taken to keep the
	// order of its values.
	t.Run("bug 17 many messages of one transaction keep their order", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		commit(t, p, msgs("a", 500)...)
		drain(t, p, outbox.RelayConfig{Batch: 64})
		if got := p.sink.done(); !slices.Equal(got, ids(msgs("a", 500))) {
			t.Errorf("delivered %d, or in another order", len(got))
		}
	})

	// Morelitea/initiative#1183 (bug 12): trimming the last, possibly split
	// transaction of a page passed over rows of others.
	t.Run("bug 12 pages that end inside interleaved transactions", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		next := 0
		for batch := 1; batch <= 8; batch++ {
			var wg sync.WaitGroup
			for range 6 {
				first := next
				next += 3
				wg.Go(func() {
					commit(t, p, msg("", first+1), msg("", first+2), msg("", first+3))
				})
			}
			wg.Wait()
			drain(t, p, outbox.RelayConfig{Batch: batch})
		}
		if p.sink.tried() != next || len(slices.Compact(slices.Sorted(slices.Values(p.sink.done())))) != next {
			t.Errorf("%d deliveries of %d messages", p.sink.tried(), next)
		}
	})

	// river#1390 (bug 79): SQLite gave the id of a deleted row out again.
	t.Run("bug 79 what follows deleted rows is delivered", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		for n := range 5 {
			commit(t, p, msg("a", n+1))
			drain(t, p, outbox.RelayConfig{})
			if _, err := p.db.ExecContext(t.Context(), "DELETE FROM reprise_outbox"); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.sink.done(); !slices.Equal(got, ids(msgs("a", 5))) {
			t.Errorf("delivered %v", got)
		}
	})

	t.Run("bug 35 a damaged row is parked as it is", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		commit(t, p, msg("a", 1), msg("a", 2), msg("b", 1), msg("b", 2))
		if _, err := p.db.ExecContext(t.Context(), "UPDATE reprise_outbox SET header = '{' WHERE message_id = 'a1'"); err != nil {
			t.Fatal(err)
		}
		b := drain(t, p, outbox.RelayConfig{})
		if b.Parked != 1 || b.Blocked != 1 || !slices.Equal(p.sink.done(), []string{"b1", "b2"}) {
			t.Errorf("backlog %+v, delivered %v; want a1 parked, a2 blocked, b1 and b2 delivered", b, p.sink.done())
		}
		var header, state string
		err := p.db.QueryRowContext(t.Context(), "SELECT header, state FROM reprise_outbox_hold WHERE message_id = 'a1'").
			Scan(&header, &state)
		if err != nil || header != "{" || state != "parked" {
			t.Errorf("the row reads %q in state %q (%v)", header, state, err)
		}
	})

	t.Run("a message arrives as it was enqueued", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		want := reprise.Message{
			ID: "Evt 1", Source: "/s?a=b", Type: "t", Subject: "ordre/é", Time: time.UnixMicro(1_700_000_000_123_456).UTC(),
			ContentType: "application/octet-stream", Data: []byte{0, 1, 0xff}, Header: map[string]string{"Trace": "ä", "b": ""},
		}
		commit(t, p, want)
		var got []reprise.Message
		p.sink.answer = func(_ context.Context, m reprise.Message, n int) error {
			got = append(got, m)
			if n == 1 {
				return errBoom // so that it goes through the hold table, too
			}
			return nil
		}
		drain(t, p, outbox.RelayConfig{RetryBase: time.Millisecond})
		if len(got) != 2 {
			t.Fatalf("%d deliveries", len(got))
		}
		for _, m := range got {
			if fmt.Sprintf("%#v", m) != fmt.Sprintf("%#v", want) {
				t.Errorf("got  %#v\nwant %#v", m, want)
			}
		}
	})

	t.Run("REL-10 nothing of a rolled-back transaction is delivered", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		err := p.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(p.out.Enqueue(ctx, tx, msg("a", 1)), errRollback)
		})
		if !errors.Is(err, errRollback) {
			t.Fatal(err)
		}
		commit(t, p, msg("a", 2))
		drain(t, p, outbox.RelayConfig{})
		if got := p.sink.done(); !slices.Equal(got, []string{"a2"}) {
			t.Errorf("delivered %v", got)
		}
	})

	t.Run("a relay without a slot takes no wake-up from the one that has it", func(t *testing.T) {
		t.Parallel()
		p := open(t, filepath.Join(t.TempDir(), "p.db"))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		start := func() *outbox.Relay {
			t.Helper()
			relay, err := outbox.NewRelay(p.Relay(), p.sink, &outbox.RelayConfig{PollMin: time.Minute, PollMax: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				if err := relay.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return relay
		}
		eventually := func(what string, done func() bool) {
			t.Helper()
			for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("waited in vain until %s", what)
				}
			}
		}
		owner := start()
		eventually("the slot was taken", func() bool { return owner.Stats().Taken == 1 })
		idle := []*outbox.Relay{start(), start(), start()}
		for n := range 20 {
			commit(t, p, msg("a", n+1))
			eventually("the commit was delivered", func() bool { return len(p.sink.done()) == n+1 })
		}
		if got := owner.Stats(); got.Delivered != 20 || got.Wakes[outbox.WakeCommit] < 19 { // the first may meet the take-over
			t.Errorf("%d delivered, wakes %v; want 20, by commits", got.Delivered, got.Wakes)
		}
		for i, relay := range idle {
			if got := relay.Stats().Taken; got != 0 {
				t.Errorf("idle relay %d took %d slots: it was not idle", i, got)
			}
		}
	})

	t.Run("commits of another process are found by polling", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "p.db")
		here, there := open(t, path), open(t, path)
		relay, err := outbox.NewRelay(here.Relay(), here.sink, &outbox.RelayConfig{PollMax: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- relay.Run(ctx) }()
		for n := range 10 {
			commit(t, there, msg("a", n+1))
			for deadline := time.Now().Add(10 * time.Second); len(here.sink.done()) <= n; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("message %d has not arrived", n+1)
				}
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wakes := relay.Stats().Wakes
		if wakes[outbox.WakeCommit] != 0 || wakes[outbox.WakePoll]+wakes[outbox.WakeTakeover] != 10 {
			t.Errorf("wakes = %v, want none by commits", wakes)
		}
	})
}
