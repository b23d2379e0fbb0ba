// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

func TestRelayHold(t *testing.T) {
	t.Parallel()

	// ThreeDotsLabs/watermill#224 and MassTransit#6216 (bugs 31 and 30): a failing
	// message at the head was taken again at once, for ever, and nothing else moved.
	t.Run("bug 30 poison at the head of every batch", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const batches, size = 20, 5
			s := newMemory(1)
			var poison, good []string
			for b := range batches {
				for i := range size {
					m := msg(fmt.Sprintf("s%d-", b*size+i), 1)
					s.commit(m)
					if i == 0 {
						poison = append(poison, m.ID)
					} else {
						good = append(good, m.ID)
					}
				}
			}
			sink := &recorder{answer: failing(errBoom, poison...)}
			r := newRig(t, s, sink, outbox.RelayConfig{Batch: size, MaxAttempts: 4})
			after(50 * time.Millisecond)
			done := sink.done()
			slices.Sort(done)
			slices.Sort(good)
			if !slices.Equal(done, good) {
				t.Fatalf("delivered %d of %d good messages at once", len(done), len(good))
			}
			after(time.Hour)
			for _, id := range poison {
				h, ok := s.held(id)
				if !ok || h.State != store.HoldParked || h.Attempts != 4 || sink.count(id) != 4 {
					t.Errorf("%s: %+v after %d deliveries, want parked after 4", id, h, sink.count(id))
				}
			}
			if stats := r.relay.Stats(); stats.Parked != batches || stats.Failed != 4*batches ||
				stats.Delivered != uint64(len(good)) || stats.Unknown != 0 {
				t.Errorf("stats = %+v", stats)
			}
			r.end()
		})
	})

	// dotnetcore/CAP deletes failed rows after 15 days (bug 38).
	t.Run("bug 38 parked stays parked, also over restarts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("a", 2))
			sink := &recorder{answer: failing(outbox.Permanent(errBoom), "a1")}
			for range 3 {
				r := newRig(t, s, sink, outbox.RelayConfig{})
				after(2 * time.Hour)
				r.end()
			}
			h, _ := s.held("a1")
			behind, _ := s.held("a2")
			if h.State != store.HoldParked || behind.State != store.HoldBlocked || sink.tried() != 1 {
				t.Errorf("a1 is %q, a2 is %q after %d deliveries; want parked, blocked, 1", h.State, behind.State, sink.tried())
			}
		})
	})

	// cyberfabric#908 item 8 (bug 45): the dead letter held the count before the
	// failing attempt. Wolverine GH-3926 (bug 40): a permanent error was retried.
	t.Run("bugs 40 and 45 permanent parks at the first attempt and counts it", func(t *testing.T) {
		t.Parallel()
		for name, err := range map[string]error{
			"marked":             fmt.Errorf("wrapped: %w", outbox.Permanent(errBoom)),
			"rejected":           &reprise.Error{Code: "payload-differs", Outcome: reprise.Rejected},
			"decided, then lost": outbox.Unavailable(outbox.Permanent(errBoom)),
		} {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(1)
				s.commit(msg("a", 1))
				sink := &recorder{answer: failing(err, "a1")}
				r := newRig(t, s, sink, outbox.RelayConfig{})
				after(time.Hour)
				h, _ := s.held("a1")
				if h.State != store.HoldParked || h.Attempts != 1 || !strings.Contains(h.Reason, err.Error()) {
					t.Errorf("%s: %+v, want parked after 1 attempt with its reason", name, h)
				}
				r.end()
			})
		}
	})

	t.Run("retries spread between zero and the doubled base", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			all := loose(200)
			s.commit(all...)
			sink := &recorder{answer: failing(errBoom, ids(all)...)}
			r := newRig(t, s, sink, outbox.RelayConfig{RetryBase: time.Minute, RetryCap: 4 * time.Minute, MaxAttempts: 5})
			after(time.Hour)
			for n, ceiling := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 4 * time.Minute} {
				var sum, longest time.Duration
				for _, m := range all {
					at := sink.times(m.ID)
					wait := at[n+1].Sub(at[n])
					longest, sum = max(longest, wait), sum+wait
				}
				mean := sum / time.Duration(len(all))
				if longest > ceiling+1100*time.Millisecond || mean < ceiling*4/10 || mean > ceiling*6/10+time.Second {
					t.Errorf("wait %d: mean %v, longest %v; want about %v and at most %v and a poll", n+1, mean, longest, ceiling/2, ceiling)
				}
			}
			r.end()
		})
	})

	// riverqueue/river#1324 and #1380 (bugs 31 and 35): one row with invalid JSON
	// made the whole fetch fail, and everything fetched with it stayed locked.
	t.Run("bug 35 an unreadable row fails alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.bad["a2"] = errors.New("headers are not JSON")
			s.bad["c1"] = s.bad["a2"]
			s.commit(msg("a", 1), msg("a", 2), msg("a", 3), msg("b", 1), msg("c", 1))
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{})
			after(time.Hour)
			done := r.sink.done()
			slices.Sort(done)
			if !slices.Equal(done, []string{"a1", "b1"}) {
				t.Errorf("delivered %v, want a1 and b1", done)
			}
			for id, want := range map[string]store.HoldState{
				"a2": store.HoldParked, "a3": store.HoldBlocked, "c1": store.HoldParked,
			} {
				if h, _ := s.held(id); h.State != want || h.Attempts != 0 {
					t.Errorf("%s: %q after %d attempts, want %q after none", id, h.State, h.Attempts, want)
				}
			}
			if h, _ := s.held("a2"); !strings.Contains(h.Reason, "headers are not JSON") {
				t.Errorf("reason = %q", h.Reason)
			}
			if s := r.relay.Stats(); s.Parked != 2 || s.Blocked != 1 {
				t.Errorf("stats = %+v", s)
			}
			r.end()
		})
	})

	t.Run("bug 35 a held message that has become unreadable fails alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("b", 1))
			sink := &recorder{answer: func(_ context.Context, _ reprise.Message, n int) error {
				if n == 1 {
					return errBoom
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{RetryBase: time.Hour, RetryCap: time.Hour})
			after(time.Millisecond)
			s.mu.Lock()
			s.bad["a1"] = errors.New("headers are not JSON")
			s.mu.Unlock()
			after(2 * time.Hour)
			r.delivered("b1")
			if h, _ := s.held("a1"); h.State != store.HoldParked || h.Attempts != 1 || sink.count("a1") != 1 {
				t.Errorf("a1: %+v after %d deliveries, want parked after the one of before", h, sink.count("a1"))
			}
			r.end()
		})
	})

	t.Run("a panic fails its own message only", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("b", 1), msg("b", 2))
			sink := &recorder{answer: func(_ context.Context, m reprise.Message, n int) error {
				if m.ID == "a1" && n < 3 {
					panic("no such thing")
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(10 * time.Millisecond)
			r.delivered("b1", "b2")
			if h, _ := s.held("a1"); h.State != store.HoldRetry || !strings.Contains(h.Reason, "no such thing") {
				t.Errorf("a1: %+v", h)
			}
			after(time.Minute)
			r.delivered("b1", "b2", "a1")
			r.empty()
			r.end()
		})
	})

	t.Run("a sink that ends its goroutine hangs nobody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("b", 1))
			sink := &recorder{answer: func(_ context.Context, m reprise.Message, n int) error {
				if m.ID == "a1" && n == 1 {
					runtime.Goexit()
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Minute)
			r.delivered("b1", "a1")
			r.empty()
			r.end()
		})
	})

	t.Run("a reason is cut to 1 KiB of valid UTF-8", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: failing(errors.New(strings.Repeat("ä\xff", 5000)), "a1")}
			r := newRig(t, s, sink, outbox.RelayConfig{})
			after(time.Millisecond)
			if h, _ := s.held("a1"); len(h.Reason) > 1024 || len(h.Reason) < 1000 || strings.ToValidUTF8(h.Reason, "") != h.Reason {
				t.Errorf("reason of %d bytes: %q", len(h.Reason), h.Reason)
			}
			r.end()
		})
	})
}
