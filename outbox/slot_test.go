// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

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
