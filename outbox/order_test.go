// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

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

	t.Run("more hung subjects than workers hold up nobody else, and give every worker back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const workers = 4
			s := newMemory(1)
			hung := hungSubjects(2*workers + 1)
			s.commit(append(hung, msg("b", 1))...)
			sink := &recorder{answer: hang(20 * time.Second)}
			r := newRig(t, s, sink, outbox.RelayConfig{Workers: workers})
			after(3500 * time.Millisecond) // three rounds of workers, each for Patience
			r.delivered("b1")
			if got := sink.widest(); got < len(hung) {
				t.Errorf("%d deliveries at once, want the %d hung ones", got, len(hung))
			}
			committed := time.Now()
			s.commit(msg("b", 2))
			after(0)
			if at := sink.times("b2"); len(at) != 1 || at[0].After(committed) {
				t.Errorf("b2 was delivered at %v, want at once", at)
			}
			after(time.Minute)
			if got := len(sink.done()); got != len(hung)+2 || sink.tried() != got || len(sink.overlapped()) > 0 {
				t.Errorf("%d delivered in %d deliveries, overlaps in %v; want each of %d once", got, sink.tried(), sink.overlapped(), len(hung)+2)
			}
			wantWidth(t, s, sink, workers)
			r.empty()
			r.end()
		})
	})

	t.Run("beyond Slow, hung subjects keep their workers until they end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const workers, slow = 2, 3
			s := newMemory(1)
			s.commit(append(hungSubjects(workers+slow+2), msg("b", 1))...)
			sink := &recorder{answer: hang(20 * time.Second)}
			r := newRig(t, s, sink, outbox.RelayConfig{Workers: workers, Slow: slow})
			after(19 * time.Second)
			if got := sink.widest(); got != workers+slow {
				t.Errorf("%d deliveries at once, want Workers and Slow: %d", got, workers+slow)
			}
			r.delivered()
			after(time.Minute)
			if got := len(sink.done()); got != workers+slow+3 || sink.tried() != got {
				t.Errorf("%d delivered in %d deliveries, want each of %d once", got, sink.tried(), workers+slow+3)
			}
			wantWidth(t, s, sink, workers)
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

// hungSubjects are n messages, each of a subject of its own, that hang delays.
func hungSubjects(n int) (all []reprise.Message) {
	for i := range n {
		all = append(all, msg(fmt.Sprintf("hung%d-", i), 1))
	}
	return all
}

// hang delays the deliveries of hung subjects by d, and those of loose messages
// by a moment, well within Patience.
func hang(d time.Duration) func(context.Context, reprise.Message, int) error {
	return func(_ context.Context, m reprise.Message, _ int) error {
		switch {
		case strings.HasPrefix(m.Subject, "hung"):
			time.Sleep(d)
		case m.Subject == "":
			time.Sleep(100 * time.Millisecond)
		}
		return nil
	}
}

// wantWidth checks that exactly so many workers are free.
func wantWidth(t *testing.T, s *memory, sink *recorder, workers int) {
	t.Helper()
	sink.widest()
	s.commit(loose(5 * workers)...)
	after(time.Second)
	if got := sink.widest(); got != workers {
		t.Errorf("afterwards %d deliveries at once, want %d: a worker was lost or won", got, workers)
	}
}
