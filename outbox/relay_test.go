// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// rig is a relay between a memory store and a recorder, in a bubble of fake time.
type rig struct {
	t     *testing.T
	store *memory
	sink  *recorder
	relay *outbox.Relay
	stop  context.CancelFunc
	ended chan struct{}
	err   error // of Run, once ended
}

// newRig starts a relay. It must be called inside a bubble.
func newRig(t *testing.T, s *memory, sink *recorder, c outbox.RelayConfig) *rig {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	relay, err := outbox.NewRelay(s, sink, &c)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: s, sink: sink, relay: relay, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.ended)
		r.err = relay.Run(ctx)
	}()
	t.Cleanup(func() { _ = r.wait() })
	return r
}

// end stops the relay and checks that it gave up what it held.
func (r *rig) end() {
	r.t.Helper()
	if err := r.wait(); err != nil {
		r.t.Errorf("Run: %v", err)
	}
	if n := r.store.leased(); n != 0 {
		r.t.Errorf("%d slots are still leased after a graceful stop", n)
	}
}

// wait stops the relay and returns what Run returned.
func (r *rig) wait() error {
	r.stop()
	<-r.ended
	return r.err
}

// delivered checks that exactly these were confirmed, in this order.
func (r *rig) delivered(want ...string) {
	r.t.Helper()
	if got := r.sink.done(); !slices.Equal(got, want) {
		r.t.Errorf("delivered %v, want %v", got, want)
	}
}

// empty checks that nothing waits or is held.
func (r *rig) empty() {
	r.t.Helper()
	b, err := r.relay.Backlog(context.Background())
	if err != nil || b != (store.Backlog{}) {
		r.t.Errorf("backlog = %+v (%v), want none", b, err)
	}
}

func after(d time.Duration) {
	time.Sleep(d) // In a bubble this only moves the clock.
	synctest.Wait()
}

var errBoom = errors.New("boom")

// failing fails the deliveries of these messages.
func failing(err error, ids ...string) func(context.Context, reprise.Message, int) error {
	return func(_ context.Context, m reprise.Message, _ int) error {
		if slices.Contains(ids, m.ID) {
			return err
		}
		return nil
	}
}

func TestRelayOrder(t *testing.T) {
	t.Parallel()

	t.Run("O5 one subject in the order of commits, over pages", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msgs("a", 25)...)
			r := newRig(t, s, &recorder{}, outbox.RelayConfig{Batch: 7})
			after(time.Second)
			s.commit(msg("a", 26))
			after(time.Second)
			r.delivered(ids(msgs("a", 26))...)
			r.empty()
			r.end()
		})
	})

	t.Run("subjects side by side, one under way in each", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			for n := range 5 {
				for _, subject := range []string{"a", "b", "c", "d"} {
					s.commit(msg(subject, n+1))
				}
			}
			sink := &recorder{answer: func(context.Context, reprise.Message, int) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			}}
			start := time.Now()
			r := newRig(t, s, sink, outbox.RelayConfig{})
			for len(sink.done()) < 20 {
				after(10 * time.Millisecond)
			}
			if took := time.Since(start); took > 520*time.Millisecond {
				t.Errorf("20 deliveries of 100 ms in 4 subjects took %v, want about 500 ms", took)
			}
			if len(sink.overlapped()) > 0 {
				t.Errorf("two deliveries at once in %v", sink.overlapped())
			}
			r.end()
		})
	})

	t.Run("messages without a subject side by side, up to Workers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(loose(30)...)
			sink := &recorder{answer: func(context.Context, reprise.Message, int) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Workers: 10})
			after(500 * time.Millisecond)
			if len(sink.done()) != 30 || sink.widest() != 10 {
				t.Errorf("%d delivered with %d at once, want 30 with 10", len(sink.done()), sink.widest())
			}
			r.end()
		})
	})

	// gruelbox/transaction-outbox#788 (bug 42): a long call on one ordered topic
	// blocked the flush of everything else.
	t.Run("bug 42 a slow subject holds up nobody else", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("slow", 1), msg("slow", 2), msg("b", 1))
			sink := &recorder{answer: func(_ context.Context, m reprise.Message, _ int) error {
				if m.ID == "slow1" {
					time.Sleep(20 * time.Second)
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{Batch: 3})
			after(2 * time.Second)
			h, _ := s.held("slow1")
			if h.State != store.HoldRetry || h.Attempts != 1 || time.Until(h.NextAt) < 20*time.Second {
				t.Errorf("slow1 while under way: %+v, want held for as long as a delivery may take", h)
			}
			s.commit(msg("slow", 3), msg("b", 2))
			after(time.Second)
			r.delivered("b1", "b2")
			after(20 * time.Second)
			r.delivered("b1", "b2", "slow1", "slow2", "slow3")
			if sink.tried() != 5 || len(sink.overlapped()) > 0 {
				t.Errorf("%d deliveries for 5 messages, overlaps in %v", sink.tried(), sink.overlapped())
			}
			r.empty()
			r.end()
		})
	})

	t.Run("a slow delivery that fails is tried again, once at a time", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outbox.Order{outbox.OrderBlock, outbox.OrderSkip} {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(1)
				s.commit(msg("slow", 1), msg("slow", 2))
				sink := &recorder{answer: func(_ context.Context, m reprise.Message, n int) error {
					if m.ID == "slow1" && n == 1 {
						time.Sleep(20 * time.Second)
						return errBoom
					}
					return nil
				}}
				r := newRig(t, s, sink, outbox.RelayConfig{Order: order})
				after(10 * time.Second)
				s.commit(msg("slow", 3))
				after(30 * time.Second)
				if sink.count("slow1") != 2 || sink.count("slow2") != 1 || sink.count("slow3") != 1 || len(sink.overlapped()) > 0 {
					t.Errorf("%s: deliveries %v, overlaps in %v", order, sink.tally(), sink.overlapped())
				}
				if order == outbox.OrderBlock {
					r.delivered("slow1", "slow2", "slow3")
				}
				r.empty()
				r.end()
			})
		}
	})

	t.Run("skip: a held message waits while a slow one of its subject is under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1))
			sink := &recorder{answer: func(_ context.Context, m reprise.Message, n int) error {
				switch {
				case m.ID == "a1" && n == 1:
					return errBoom
				case m.ID == "a2":
					time.Sleep(20 * time.Second)
				}
				return nil
			}}
			c := outbox.RelayConfig{Order: outbox.OrderSkip, RetryBase: 2 * time.Second}
			r := newRig(t, s, sink, c)
			after(10 * time.Millisecond)
			s.commit(msg("a", 2))
			after(time.Minute)
			r.empty()
			if sink.tried() != 3 || len(sink.overlapped()) > 0 {
				t.Errorf("%d deliveries of 2 messages, overlaps in %v", sink.tried(), sink.overlapped())
			}
			r.end()
		})
	})

	// Asked for in timgit/pg-boss#691 and Axon's SequencedDeadLetterQueue (bug
	// 34): while the head of a key is held, later messages of that key wait.
	t.Run("bug 34 block: later messages wait unattempted, then drain in order", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("b", 1), msg("a", 2))
			healed := time.Now().Add(time.Minute)
			sink := &recorder{answer: func(_ context.Context, m reprise.Message, _ int) error {
				if m.ID == "a1" && time.Now().Before(healed) {
					return errBoom
				}
				return nil
			}}
			r := newRig(t, s, sink, outbox.RelayConfig{MaxAttempts: 1000})
			synctest.Wait()
			s.commit(msg("a", 3), msg("b", 2))
			synctest.Wait()
			if sink.count("a3") != 0 {
				t.Error("a3 was tried behind an a1 that had just been held")
			}
			after(59 * time.Second)
			if sink.count("a2") != 0 || sink.count("a3") != 0 {
				t.Errorf("a2 was tried %d and a3 %d times behind a held a1", sink.count("a2"), sink.count("a3"))
			}
			r.delivered("b1", "b2")
			after(10 * time.Minute)
			r.delivered("b1", "b2", "a1", "a2", "a3")
			r.empty()
			r.end()
		})
	})

	// namastack-outbox#80 (bug 33): with stop-on-first-failure=false a failed
	// record still hid all later records of its key.
	t.Run("bug 33 skip: later messages go on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(1)
			s.commit(msg("a", 1), msg("a", 2))
			sink := &recorder{answer: failing(errBoom, "a1")}
			r := newRig(t, s, sink, outbox.RelayConfig{Order: outbox.OrderSkip, MaxAttempts: 3})
			after(time.Second)
			s.commit(msg("a", 3))
			after(time.Hour)
			s.commit(msg("a", 4))
			after(time.Second)
			r.delivered("a2", "a3", "a4")
			if h, ok := s.held("a1"); !ok || h.State != store.HoldParked || sink.count("a1") != 3 {
				t.Errorf("a1 is %+v after %d deliveries, want parked after 3", h, sink.count("a1"))
			}
			r.end()
		})
	})
}

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

func TestNewRelay(t *testing.T) {
	t.Parallel()
	s, sink := newMemory(1), &recorder{}
	for name, c := range map[string]outbox.RelayConfig{
		"negative lease":         {Lease: -time.Second},
		"a lease below 100 ms":   {Lease: 99 * time.Millisecond},
		"negative drain":         {Drain: -1},
		"negative batch":         {Batch: -1},
		"negative attempts":      {MaxAttempts: -1},
		"PollMin over PollMax":   {PollMin: 2 * time.Second},
		"RetryBase over its cap": {RetryBase: time.Hour},
		"an unknown order":       {Order: "random"},
	} {
		if r, err := outbox.NewRelay(s, sink, &c); err == nil || r != nil || !strings.Contains(err.Error(), "RelayConfig.") {
			t.Errorf("%s: error = %v, want one that names the option", name, err)
		}
	}
	if _, err := outbox.NewRelay(nil, sink, nil); err == nil {
		t.Error("no store was accepted")
	}
	if _, err := outbox.NewRelay(s, nil, nil); err == nil {
		t.Error("no sink was accepted")
	}
	if _, err := outbox.NewRelay(s, sink, nil); err != nil {
		t.Errorf("the defaults were refused: %v", err)
	}
	if outbox.Permanent(nil) != nil || outbox.Unavailable(nil) != nil {
		t.Error("no error became one")
	}
}

func TestRelayObserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(1)
		s.commit(msg("a", 1), msg("b", 1))
		sink := &recorder{answer: func(_ context.Context, m reprise.Message, n int) error {
			time.Sleep(10 * time.Millisecond)
			if m.ID == "a1" && n < 3 {
				return errBoom
			}
			return nil
		}}
		var seen []string
		r := newRig(t, s, sink, outbox.RelayConfig{Workers: 1, Observe: func(d outbox.Delivery) {
			seen = append(seen, fmt.Sprintln(d.Message.ID, d.Attempt, d.State, d.Err, d.Took, d.Wake))
		}})
		after(time.Minute)
		r.end()
		want := []string{
			"a1 1 retry boom 10ms takeover\n", "b1 1 delivered <nil> 10ms takeover\n",
			"a1 2 retry boom 10ms hold\n", "a1 3 delivered <nil> 10ms hold\n",
		}
		if !slices.Equal(seen, want) {
			t.Errorf("observed %q, want %q", seen, want)
		}
		if lag := r.relay.Stats().Lag; lag < 30*time.Millisecond || lag > 5*time.Second {
			t.Errorf("lag = %v", lag)
		}
	})
}
