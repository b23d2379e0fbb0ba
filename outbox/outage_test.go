// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

// TestRelayOutage: the destination as a whole is away (Brighter#3155, bug 43;
// wolverine GH-3680, bug 59).
func TestRelayOutage(t *testing.T) {
	t.Parallel()

	t.Run("bugs 43 and 59 an outage uses up no attempt, loses nothing, and probes one at a time", func(t *testing.T) {
		t.Parallel()
		for name, away := range map[string]error{
			"marked": outbox.Unavailable(errBoom), "store": store.ErrUnavailable, "reprise": reprise.ErrStoreUnavailable,
		} {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(1)
				all := append(loose(300), msgs("a", 20)...)
				back := time.Now().Add(time.Hour)
				sink := &recorder{}
				sink.answer = func(context.Context, reprise.Message, int) error {
					time.Sleep(5 * time.Millisecond)
					if time.Now().Before(back) {
						return away
					}
					return nil
				}
				r := newRig(t, s, sink, outbox.RelayConfig{MaxAttempts: 2})
				after(5 * time.Second)
				s.commit(all...)
				after(time.Minute)
				sink.widest()
				after(58 * time.Minute)
				wide := sink.widest()
				if n := sink.tried(); n > 16+16+2*360 || wide != 1 {
					t.Errorf("%s: %d deliveries during the outage, %d at once; want one probe each 5 to 10 s", name, n, wide)
				}
				if b, _ := r.relay.Backlog(t.Context()); b.Waiting != len(all) || b.Retry+b.Blocked+b.Parked != 0 {
					t.Errorf("%s: backlog during the outage %+v, want %d waiting", name, b, len(all))
				}
				after(2 * time.Minute)
				got, want := sink.done(), ids(all)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d of %d messages delivered after the outage", name, len(got), len(want))
				}
				if s := r.relay.Stats(); s.Failed != 0 || s.Parked != 0 || s.Unavailable == 0 {
					t.Errorf("%s: stats %+v", name, s)
				}
				r.empty()
				r.end()
			})
		}
	})

	t.Run("order is kept through an outage", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msgs("a", 10)...)
			sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
				if n == 1 {
					return outbox.Unavailable(errBoom)
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			r.delivered(ids(msgs("a", 10))...)
			r.end()
		})
	})

	t.Run("a stop during an outage leaves everything waiting as it was", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(append(loose(50), msgs("a", 5)...)...)
			sink := &recorder{answer: func(context.Context, reprise.Message, int) error { return outbox.Unavailable(errBoom) }}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			start := time.Now()
			r.end()
			if took := time.Since(start); took > time.Second {
				t.Errorf("the stop took %v", took)
			}
			if b, _ := r.relay.Backlog(t.Context()); b.Waiting != 55 || s.called("advance") != 0 {
				t.Errorf("backlog %+v after %d advances, want 55 waiting after none", b, s.called("advance"))
			}
			sink.answer = nil
			r = newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			if len(sink.done()) != 55 {
				t.Errorf("%d delivered by the next relay, want 55", len(sink.done()))
			}
			r.end()
		})
	})

	t.Run("a stop in the middle of a page keeps what was delivered and the order", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(append(msgs("a", 5), loose(3)...)...)
			back := false
			sink := &recorder{answer: func(_ context.Context, m reprise.Message, _ int) error {
				if m.ID == "a1" || m.ID == "a2" || back {
					return nil
				}
				return outbox.Unavailable(errBoom)
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Workers: 1})
			after(time.Minute)
			r.end()
			r.delivered("a1", "a2")
			back = true
			r = newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			got := sink.done()
			inOrder := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return id[0] != 'a' })
			if len(got) != 8 || !slices.Equal(inOrder, ids(msgs("a", 5))) {
				t.Errorf("delivered %v, want each once and a1 to a5 in order", got)
			}
			r.empty()
			r.end()
		})
	})

	// pma/amqp#104 (bug 28): on a half-open connection no confirmation comes.
	t.Run("bug 28 no confirmation in time is unknown and sent again under its id", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("b", 1))
			sink := &recorder{answer: func(ctx context.Context, m reprise.Message, n int) error {
				if m.ID == "a1" && n == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Timeout: 20 * time.Second})
			after(10 * time.Second)
			r.delivered("b1")
			after(time.Minute)
			r.delivered("b1", "a1")
			if stats := r.relay.Stats(); stats.Unknown != 1 || stats.Failed != 1 || sink.count("a1") != 2 {
				t.Errorf("stats = %+v after %d deliveries of a1, want one unknown of 2", stats, sink.count("a1"))
			}
			r.end()
		})
	})

	// dotnetcore/CAP#1368, #1610 and #1816 (bug 81): a cancelled handler counted as
	// one that had succeeded.
	t.Run("bug 81 success reported after the time was up is not success", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: func(ctx context.Context, _ reprise.Message, n int) error {
				if n < 3 {
					<-ctx.Done() // and gives up half-way, saying nothing
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(10 * time.Minute)
			if sink.count("a1") != 3 || r.relay.Stats().Delivered != 1 {
				t.Errorf("%d deliveries with %d counted, want 3 with 1", sink.count("a1"), r.relay.Stats().Delivered)
			}
			r.empty()
			r.end()
		})
	})

	t.Run("a probe without an answer does not open the gate", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(loose(40)...)
			start := time.Now()
			sink := &recorder{answer: func(ctx context.Context, _ reprise.Message, _ int) error {
				if time.Now().Equal(start) {
					return outbox.Unavailable(errBoom)
				}
				<-ctx.Done()
				return ctx.Err()
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Timeout: 30 * time.Second, Workers: 8})
			after(time.Millisecond)
			tried := sink.tried()
			after(5 * time.Minute)
			if more := sink.tried() - tried; more > 12 {
				t.Errorf("%d deliveries in 5 minutes into a destination that hangs, want one after the other", more)
			}
			r.end()
		})
	})

	t.Run("a slow delivery that finds the destination away costs no attempt either", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
				if n < 5 {
					time.Sleep(5 * time.Second)
					return outbox.Unavailable(errBoom)
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{MaxAttempts: 1})
			after(10 * time.Minute)
			r.delivered("a1")
			r.empty()
			if stats := r.relay.Stats(); stats.Unavailable != 4 || stats.Failed != 0 {
				t.Errorf("stats = %+v, want 4 unavailable", stats)
			}
			r.end()
		})
	})

	t.Run("errors that are only about one message shut nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			poison := loose(100)
			s.commit(poison...)
			sink := &recorder{answer: failing(errors.New("bad content"), ids(poison)...)}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			for n := range 20 {
				start := time.Now()
				s.commit(msg("good", n+1))
				for sink.count(msg("good", n+1).ID) == 0 {
					after(time.Millisecond)
				}
				if took := time.Since(start); took > 5*time.Millisecond {
					t.Errorf("a good message waited %v among poison", took)
				}
				after(7 * time.Second)
			}
			r.end()
		})
	})
}
