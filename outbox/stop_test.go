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
