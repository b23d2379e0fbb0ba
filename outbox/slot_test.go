// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func TestRelayStop(t *testing.T) {
	t.Parallel()

	// namastack-outbox#204 (bug 62): a partition was released while a worker still
	// published from it. watermill#568 (bug 82): acknowledgements failed because
	// they were made under the cancelled context of the shutdown.
	t.Run("bugs 62 and 82 the batch ends, is recorded, and then the slot is released", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(append(msgs("a", 3), msgs("b", 3)...)...)
			sink := &recorder{answer: func(ctx context.Context, _ reprise.Message, _ int) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(500 * time.Millisecond):
					return nil
				}
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(250 * time.Millisecond)
			r.end()
			if len(sink.done()) != 6 || sink.tried() != 6 || s.slot(0).position != 6 {
				t.Errorf("%d of 6 delivered, position %d", len(sink.done()), s.slot(0).position)
			}
			r.empty()
		})
	})

	t.Run("bug 82 deliveries past Drain are broken off and cost no attempt", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(append(msgs("a", 3), msg("b", 1))...)
			sink := &recorder{answer: func(ctx context.Context, m reprise.Message, n int) error {
				if m.ID == "a2" && n == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Patience: time.Hour, Drain: 3 * time.Second})
			after(time.Second)
			start := time.Now()
			r.end()
			if took := time.Since(start); took != 3*time.Second {
				t.Errorf("the stop took %v, want Drain", took)
			}
			if h, _ := s.held("a2"); h.State != store.HoldRetry || h.Attempts != 0 {
				t.Errorf("a2: %+v, want a retry that has cost nothing", h)
			}
			if h, _ := s.held("a3"); h.State != store.HoldBlocked {
				t.Errorf("a3: %+v, want blocked", h)
			}
			r = newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Second)
			if got := sink.done(); !slices.Equal(got[2:], []string{"a2", "a3"}) || sink.tried() != 5 {
				t.Errorf("delivered %v in %d deliveries", got, sink.tried())
			}
			r.empty()
			r.end()
		})
	})

	t.Run("no delivery starts after Drain", func(t *testing.T) {
		t.Parallel()
		for _, messages := range [][]reprise.Message{loose(10), msgs("a", 10)} {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(1)
				s.commit(messages...)
				sink := &recorder{answer: func(ctx context.Context, _ reprise.Message, _ int) error {
					<-ctx.Done()
					return ctx.Err()
				}}
				r := newRig(t, s, sink, outbox.RelayConfig{Workers: 1, Order: outbox.OrderSkip, Patience: time.Hour, Timeout: time.Hour})
				after(time.Second)
				r.end()
				if b, _ := r.relay.Backlog(t.Context()); sink.tried() != 1 || b.Retry+b.Blocked != 10 {
					t.Errorf("%d deliveries, backlog %+v; want one, and 10 held", sink.tried(), b)
				}
			})
		}
	})

	t.Run("a stop while a slot is being acquired leaves nothing leased", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.fault = func(op string, done bool) error {
				if op == "acquire" && done {
					time.Sleep(time.Second)
				}
				return nil
			}
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(500 * time.Millisecond)
			if s.leased() != 1 {
				t.Fatal("the slot has not been granted yet")
			}
			r.end()
		})
	})

	t.Run("a message that was left is still recorded", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: func(context.Context, reprise.Message, int) error {
				time.Sleep(4 * time.Second)
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(2 * time.Second)
			r.end()
			r.empty()
			r.delivered("a1")
		})
	})

	// wolverine GH-3796 and #3960 (bug 60): what arrived between the drain and the
	// latch vanished. Here the stop falls on every moment of a busy second.
	t.Run("bug 60 a stop at any moment loses nothing and repeats nothing", func(t *testing.T) {
		t.Parallel()
		for offset := range 100 {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(2)
				sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
					time.Sleep(7 * time.Millisecond)
					if n%3 == 1 {
						return errBoom
					}
					return nil
				}}
				c := outbox.RelayConfig{RetryBase: 20 * time.Millisecond, Batch: 3}
				r := newRig(t, s, sink, c)
				go func() {
					for n := range 20 {
						s.commit(msg("a", n+1), msg("b", n+1), msg("", n+1))
						time.Sleep(9 * time.Millisecond)
					}
				}()
				time.Sleep(time.Duration(offset) * 2 * time.Millisecond)
				r.end()
				r = newRig(t, s, sink, c)
				after(10 * time.Second)
				if got := len(sink.done()); got != 60 || sink.tried() != 120 || len(sink.overlapped()) > 0 {
					t.Errorf("stopped after %d ms: %d confirmed in %d deliveries, want 60 in 120", 2*offset, got, sink.tried())
				}
				for _, subject := range []string{"a", "b"} {
					got := slices.DeleteFunc(sink.done(), func(id string) bool { return id[:1] != subject })
					if !slices.Equal(got, ids(msgs(subject, 20))) {
						t.Errorf("stopped after %d ms: order %v", 2*offset, got)
					}
				}
				r.empty()
				r.end()
			})
		}
	})

	t.Run("Run says when it could not record what was delivered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			s.fault = func(op string, _ bool) error {
				if op == "advance" || op == "release" {
					return store.ErrUnavailable
				}
				return nil
			}
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(time.Second)
			if err := r.wait(); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("error = %v, want the store's", err)
			}
		})
	})

	t.Run("one Run at a time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newMemory(1), &recorder{}, outbox.RelayConfig{})
			after(time.Second)
			if err := r.relay.Run(t.Context()); err == nil {
				t.Error("a second Run was accepted")
			}
			r.end()
		})
	})
}

// TestRelayStore: the store fails around each call; what was confirmed is
// recorded in the end, and repeated only where its record was in doubt.
func TestRelayStore(t *testing.T) {
	t.Parallel()
	const n = 5
	for _, c := range []struct {
		op   string
		done bool // after the call took effect
		err  error
		// repeats is how many deliveries the fault may cost.
		repeats int
	}{
		{"acquire", false, store.ErrUnavailable, 0},
		{"acquire", true, store.ErrCommitUnknown, 0},
		{"subjects", false, store.ErrUnavailable, 0},
		{"due", false, store.ErrUnavailable, 0},
		{"fetch", false, store.ErrUnavailable, 0},
		{"advance", false, store.ErrUnavailable, 0},
		{"advance", false, store.ErrConflict, 0},
		{"advance", false, store.ErrCommitUnknown, n},
		{"advance", true, store.ErrCommitUnknown, 0},
		{"update", false, store.ErrUnavailable, 0},
		{"update", false, store.ErrCommitUnknown, 1},
		{"update", true, store.ErrCommitUnknown, 0},
		{"renew", false, store.ErrUnavailable, 0},
		{"renew", true, store.ErrCommitUnknown, 0},
	} {
		t.Run(fmt.Sprintf("%s, kept %t, %v", c.op, c.done, c.err), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(1)
				s.commit(msgs("a", n)...)
				fired := 0
				s.fault = func(op string, done bool) error {
					if op == c.op && done == c.done && fired < 1 {
						fired++
						return c.err
					}
					return nil
				}
				sink := &recorder{answer: func(_ context.Context, m reprise.Message, n int) error {
					if m.ID == "a5" && n == 1 {
						return errBoom // so that there is an update
					}
					return nil
				}}
				r := newRig(t, s, sink, outbox.RelayConfig{})
				after(time.Minute)
				if fired != 1 {
					t.Fatalf("the fault fired %d times", fired)
				}
				got := sink.done()
				if sink.tried() > n+1+c.repeats {
					t.Errorf("%d deliveries of %d messages, want at most %d repeats", sink.tried(), n, c.repeats)
				}
				slices.Sort(got)
				if !slices.Equal(slices.Compact(got), ids(msgs("a", n))) {
					t.Errorf("delivered %v", got)
				}
				r.empty()
				r.end()
			})
		})
	}
}

func TestRelayStoreDoubt(t *testing.T) {
	t.Parallel()

	t.Run("what an unknown commit has held is known again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			s.fault = func(op string, done bool) error {
				if op == "advance" && done && s.called("advance") == 1 {
					return store.ErrCommitUnknown
				}
				return nil
			}
			sink := &recorder{answer: failing(outbox.Permanent(errBoom), "a1")}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Second)
			s.commit(msg("a", 2))
			after(time.Second)
			if h, _ := s.held("a2"); h.State != store.HoldBlocked || sink.tried() != 1 {
				t.Errorf("a2 is %q after %d deliveries, want blocked behind the parked a1", h.State, sink.tried())
			}
			r.end()
		})
	})

	t.Run("a page in doubt is not fetched again while a delivery of it is under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			s.fault = func(op string, done bool) error {
				if op == "advance" && !done && s.called("advance") == 1 {
					return store.ErrCommitUnknown
				}
				return nil
			}
			sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
				if n == 1 {
					time.Sleep(10 * time.Second)
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			if sink.tried() != 2 || len(sink.overlapped()) > 0 {
				t.Errorf("%d deliveries, overlaps in %v", sink.tried(), sink.overlapped())
			}
			r.empty()
			r.end()
		})
	})
}

func TestRelayWake(t *testing.T) {
	t.Parallel()

	t.Run("a commit of this process is delivered at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(3)
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(time.Minute)
			for n := range 50 {
				committed := time.Now()
				m := msg(fmt.Sprintf("s%d-", n), 1)
				s.commit(m)
				synctest.Wait()
				if at := r.sink.times(m.ID); len(at) != 1 || at[0].After(committed) {
					t.Fatalf("commit %d: delivered at %v, want at once", n, at)
				}
				after(time.Duration(n*37) * time.Millisecond)
			}
			if w := r.relay.Stats().Wakes; w[outbox.WakeCommit] != 50 {
				t.Errorf("wakes = %v, want 50 by commit", w)
			}
			r.end()
		})
	})

	// pg-boss#850, graphile/worker#541 and four more (bug 72): a lost wake-up left
	// everything waiting. The poll is the floor, and it is not a busy loop.
	t.Run("bug 72 without wake-ups the poll delivers within PollMax, from 10 ms when busy", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.silent = true
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(time.Minute)
			before := s.called("fetch")
			after(10 * time.Minute)
			if polls := s.called("fetch") - before; polls < 600 || polls > 1200 {
				t.Errorf("%d polls in 10 idle minutes, want one each 0.5 to 1 s", polls)
			}
			committed := time.Now()
			s.commit(msg("a", 1))
			after(time.Second)
			if at := r.sink.times("a1"); len(at) != 1 || at[0].Sub(committed) > time.Second {
				t.Fatalf("delivered at %v, want within 1 s", at)
			}
			s.commit(msg("a", 2))
			after(time.Second)
			const busy = 2000
			times := make([]time.Time, busy+1)
			for n := 3; n <= busy; n++ {
				times[n] = time.Now()
				s.commit(msg("a", n))
				after(2 * time.Millisecond)
			}
			after(time.Second)
			for n := 600; n <= busy; n++ { // the first were found by a poll from before
				if at := r.sink.times(fmt.Sprint("a", n)); len(at) != 1 || at[0].Sub(times[n]) > 10*time.Millisecond {
					t.Fatalf("busy: committed %v, delivered at %v, want within 10 ms", times[n], at)
				}
			}
			if w := r.relay.Stats().Wakes; w[outbox.WakePoll]+w[outbox.WakeBacklog] != busy {
				t.Errorf("wakes = %v, want all by poll, and none by commit", w)
			}
			r.end()
		})
	})

	// wolverine GH-3955 (bug 55): after an idle time the sender was gone for good.
	t.Run("bug 55 works again after a long idle time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(3 * time.Hour)
			s.commit(msg("a", 1))
			synctest.Wait()
			r.delivered("a1")
			r.end()
		})
	})

	t.Run("a backlog is taken page after page without a pause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(loose(1000)...)
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{Batch: 10})
			synctest.Wait()
			if got := len(r.sink.done()); got != 1000 {
				t.Errorf("%d of 1000 delivered before the clock moved", got)
			}
			if w := r.relay.Stats().Wakes; w[outbox.WakeTakeover] != 10 || w[outbox.WakeBacklog] != 990 {
				t.Errorf("wakes = %v", w)
			}
			r.end()
		})
	})
}
