// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

func TestRelayLease(t *testing.T) {
	t.Parallel()

	// CAP#1682, pg-boss#436 (bug 64): a handler outlived its lock and the message
	// was delivered a second time.
	t.Run("bug 64 a delivery longer than the lease is not repeated", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("a", 2))
			sink := &recorder{answer: func(context.Context, reprise.Message, int) error {
				time.Sleep(25 * time.Second)
				return nil
			}}
			first := newRig(t, s, sink, outbox.RelayConfig{Owner: "first", Lease: time.Second, Patience: time.Hour})
			second := newRig(t, s, sink, outbox.RelayConfig{Owner: "second", Lease: time.Second})
			after(time.Minute)
			first.delivered("a1", "a2")
			if sink.tried() != 2 || first.relay.Stats().Taken+second.relay.Stats().Taken != 1 {
				t.Errorf("%d deliveries, want 2", sink.tried())
			}
			first.wait()
			second.end()
		})
	})

	// Trellis#644 and dbos-transact-py#742 (bugs 65 and 49): an owner that had lost
	// its lease overwrote the bookkeeping of the next one, or went on without it.
	t.Run("bugs 49 and 65 a zombie records nothing and drops the slot", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msgs("a", 3)...)
			zombie := &recorder{answer: func(ctx context.Context, _ reprise.Message, _ int) error {
				<-ctx.Done()
				return nil
			}}
			z := newRig(t, s, zombie, outbox.RelayConfig{Owner: "zombie", Patience: time.Hour, Timeout: time.Hour})
			after(time.Second)
			held := s.slot(0)
			s.mu.Lock() // Somebody takes over behind its back, as after a pause of the whole process.
			s.slots[0].until = time.Time{}
			s.mu.Unlock()
			heir := &recorder{}
			h := newRig(t, s, heir, outbox.RelayConfig{Owner: "heir"})
			after(20 * time.Second)
			h.delivered("a1", "a2", "a3")
			if got := z.relay.Stats(); got.Lost != 1 || got.Delivered != 0 {
				t.Errorf("the zombie's stats are %+v, want one slot lost and nothing delivered", got)
			}
			err := s.Advance(t.Context(), store.Slot{Owner: "zombie", Epoch: held.epoch}, store.Page{Position: "3"}, nil)
			if !errors.Is(err, store.ErrLeaseLost) || s.slot(0).position != 3 {
				t.Errorf("error = %v at position %d", err, s.slot(0).position)
			}
			z.wait()
			h.end()
		})
	})

	t.Run("a refused write ends the work at once, before the next renewal", func(t *testing.T) {
		t.Parallel()
		for _, failing := range []bool{false, true} { // so that the refused write is an advance, or an update
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(1)
				s.commit(msgs("a", 10)...)
				stolen := false
				s.fault = func(op string, done bool) error {
					if !done && !stolen && (op == "advance" && !failing || op == "update") {
						stolen = true
						s.mu.Lock()
						s.slots[0].epoch, s.slots[0].owner, s.slots[0].until = 99, "heir", time.Now().Add(time.Hour)
						s.mu.Unlock()
					}
					return nil
				}
				sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
					if failing && n == 1 {
						return errBoom
					}
					return nil
				}}
				r := newRig(t, s, sink, outbox.RelayConfig{Batch: 2})
				after(2 * time.Second)
				tries, fetches := sink.tried(), s.called("fetch")
				after(time.Minute)
				if !stolen || sink.tried() != tries || s.called("fetch") != fetches || r.relay.Stats().Lost != 1 {
					t.Errorf("failing %t: stolen %t; %d deliveries and %d fetches after the refusal; stats %+v",
						failing, stolen, sink.tried()-tries, s.called("fetch")-fetches, r.relay.Stats())
				}
				_ = r.wait()
			})
		}
	})

	t.Run("a lease that can't be renewed ends the deliveries before it lapses", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msgs("a", 100)...)
			var down atomic.Bool
			s.fault = func(op string, done bool) error {
				if down.Load() {
					return store.ErrUnavailable
				}
				if op == "renew" && done {
					time.Sleep(time.Second) // The lease runs from before the answer.
				}
				return nil
			}
			var last atomic.Pointer[time.Time]
			sink := &recorder{answer: func(ctx context.Context, _ reprise.Message, _ int) error {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
				now := time.Now()
				last.Store(&now)
				return ctx.Err()
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Patience: time.Minute, Drain: time.Second})
			after(5 * time.Second)
			down.Store(true)
			after(time.Minute)
			lapses := s.slot(0).until
			if end := last.Load(); end.After(lapses) || end.Before(lapses.Add(-3*time.Second)) {
				t.Errorf("last delivery ended %v after the lease lapsed, want just before", end.Sub(lapses))
			}
			down.Store(false)
			after(3 * time.Minute)
			if got := r.relay.Stats(); got.Lost != 1 || got.Taken != 2 {
				t.Errorf("stats = %+v, want one slot lost and two taken", got)
			}
			r.empty()
			r.end()
		})
	})

	t.Run("a slot that was lost is not taken again while its last delivery is under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
				if n == 1 {
					time.Sleep(time.Minute) // and does not care for its context
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Patience: time.Hour})
			after(time.Second)
			s.mu.Lock()
			s.slots[0] = memorySlot{owner: "thief", epoch: 99}
			s.mu.Unlock()
			after(30 * time.Second)
			if sink.tried() != 1 {
				t.Errorf("%d deliveries while the first one was under way", sink.tried())
			}
			after(2 * time.Minute)
			if got := r.relay.Stats(); sink.tried() != 2 || len(sink.overlapped()) > 0 || got.Lost != 1 || got.Taken != 2 {
				t.Errorf("%d deliveries, overlaps in %v, stats %+v", sink.tried(), sink.overlapped(), got)
			}
			r.empty()
			r.end()
		})
	})

	t.Run("a lease lost at the very end of a stop is no error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: func(context.Context, reprise.Message, int) error {
				time.Sleep(4 * time.Second) // long enough to be left
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Lease: time.Hour})
			after(2 * time.Second)
			r.stop()
			s.mu.Lock()
			s.slots[0] = memorySlot{owner: "thief", epoch: 99, position: 1}
			s.mu.Unlock()
			if err := r.wait(); err != nil || r.relay.Stats().Lost != 1 {
				t.Errorf("error = %v, stats %+v; want nil and one slot lost", err, r.relay.Stats())
			}
		})
	})

	t.Run("a renewal that fails for a moment costs nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(loose(1)...)
			s.fault = func(op string, done bool) error {
				if op == "renew" && !done && s.called("renew")%3 != 0 {
					return store.ErrUnavailable
				}
				return nil
			}
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(time.Hour)
			if got := r.relay.Stats(); got.Lost != 0 || got.Taken != 1 {
				t.Errorf("stats = %+v", got)
			}
			r.end()
		})
	})

	t.Run("slots are shared, and all of them served", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(8)
			sink := &recorder{}
			one := newRig(t, s, sink, outbox.RelayConfig{Slots: 3})
			two := newRig(t, s, sink, outbox.RelayConfig{})
			after(10 * time.Second)
			want := 0
			for n := range 50 {
				s.commit(msgs(fmt.Sprintf("s%d-", n), 4)...)
				want += 4
			}
			after(10 * time.Second)
			if got := len(sink.done()); got != want || sink.tried() != want || len(sink.overlapped()) > 0 {
				t.Errorf("%d confirmed in %d deliveries of %d messages", got, sink.tried(), want)
			}
			if a, b := one.relay.Stats().Taken, two.relay.Stats().Taken; a > 3 || a+b != 8 {
				t.Errorf("slots taken: %d and %d", a, b)
			}
			two.wait()
			one.end()
		})
	})
}
