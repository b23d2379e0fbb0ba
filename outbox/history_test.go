// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

// TestHistory: writers commit and roll back, relays die, freeze, stop and take
// over from each other in the middle of anything, the destination fails in every
// way, and afterwards exactly the committed events have had their effect, once
// and in order. It is the test of bugs 1, 4, 7, 12 and 13 (watermill#311,
// marten#4972, Eventuous#588, Morelitea/initiative#1183) for this store, too:
// numbers that were rolled back leave holes, pages end inside transactions, and
// nothing is passed over.
func TestHistory(t *testing.T) {
	t.Parallel()
	var crashes, freezes, faults, takeovers atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				h := &history{world: newWorld(t, t.TempDir()), rng: rand.New(rand.NewPCG(seed, 0))}
				h.run(t)
				crashes.Add(h.crashes.Load())
				freezes.Add(h.freezes.Load())
				faults.Add(h.faults.Load())
				takeovers.Add(h.takeovers.Load())
			})
		}
	})
	if crashes.Load() == 0 || freezes.Load() == 0 || faults.Load() == 0 || takeovers.Load() == 0 {
		t.Errorf("%d crashes, %d freezes, %d faults of the sink, %d takeovers: what did not happen proves nothing",
			crashes.Load(), freezes.Load(), faults.Load(), takeovers.Load())
	}
}

type history struct {
	*world
	rngMu sync.Mutex
	rng   *rand.Rand

	crashes, freezes, faults, takeovers atomic.Int64
}

// draw returns a number below n.
func (h *history) draw(n int) int {
	h.rngMu.Lock()
	defer h.rngMu.Unlock()
	return h.rng.IntN(n)
}

var errRollback = errors.New("rolled back on purpose")

func (h *history) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var writers, relays sync.WaitGroup
	for range 4 {
		writers.Go(func() { h.write(ctx, t) })
	}
	writing, written := context.WithCancel(ctx)
	for range 2 {
		relays.Go(func() {
			for writing.Err() == nil {
				h.relayOnce(ctx, t)
			}
		})
	}
	writers.Wait()
	written()
	relays.Wait()

	// One sound relay finishes what the others have left.
	relay := h.newRelay(t, h.producer.Relay(), 10*time.Second, 10*time.Second)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	for b := (store.Backlog{Waiting: 1}); b.Waiting+b.Retry+b.Blocked > 0; {
		var err error
		if b, err = relay.Backlog(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not drained in time: %+v", b)
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.check(t)
}

// write commits, rolls back and panics.
func (h *history) write(ctx context.Context, t *testing.T) {
	subjects := []string{"a", "b", "c", "d", "", ""}
	for range 25 {
		var chosen []string
		for range h.draw(4) {
			chosen = append(chosen, subjects[h.draw(len(subjects))])
		}
		fate := h.draw(10)
		err := func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = errRollback
				}
			}()
			return h.producer.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if err := h.emit(ctx, tx, chosen...); err != nil {
					return err
				}
				switch fate {
				case 0:
					return errRollback
				case 1:
					panic("on purpose")
				}
				return nil
			})
		}()
		if err != nil && !errors.Is(err, errRollback) {
			t.Errorf("commit: %v", err)
		}
		time.Sleep(time.Duration(h.draw(4)) * time.Millisecond)
	}
}

// deliver hands a message to the inbox, and does to it what networks do.
func (h *history) deliver(ctx context.Context, m reprise.Message) error {
	fate := h.draw(20)
	if fate < 6 {
		h.faults.Add(1)
	}
	switch fate {
	case 0, 1:
		return errBoom
	case 2:
		return outbox.Unavailable(errBoom)
	case 3:
		panic("on purpose")
	case 4:
		time.Sleep(8 * time.Millisecond) // longer than Patience
	}
	if err := h.in.Handler(h.apply).Deliver(ctx, m); err != nil {
		return err
	}
	if fate == 5 {
		return errBoom // The effect is there, its confirmation is lost.
	}
	return nil
}

// newRelay returns a relay that is quick to notice everything.
func (h *history) newRelay(t *testing.T, s store.Relay, lease, drain time.Duration) *outbox.Relay {
	t.Helper()
	relay, err := outbox.NewRelay(s, outbox.SinkFunc(h.deliver), &outbox.RelayConfig{
		Lease: lease, Batch: 1 + h.draw(7), Workers: 1 + h.draw(4), MaxAttempts: 1000,
		RetryBase: time.Millisecond, RetryCap: 10 * time.Millisecond, Timeout: time.Second, Patience: 5 * time.Millisecond,
		Probe: 5 * time.Millisecond, PollMin: time.Millisecond, PollMax: 10 * time.Millisecond, Drain: drain,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Error(err)
	}
	return relay
}

// relayOnce runs one relay to its end: a stop, a crash at some call of its store,
// or a freeze for longer than its lease.
func (h *history) relayOnce(ctx context.Context, t *testing.T) {
	s := &mortal{Relay: h.producer.Relay(), at: int64(1 + h.draw(40)), after: h.draw(2) == 0}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(20+h.draw(300))*time.Millisecond)
	defer cancel()
	drain := 5 * time.Second
	switch h.draw(3) {
	case 0:
		drain = 10 * time.Millisecond
		s.fate = func() {
			h.crashes.Add(1)
			s.dead.Store(true)
			cancel()
		}
	case 1:
		s.fate = func() {
			h.freezes.Add(1)
			time.Sleep(150 * time.Millisecond)
		}
	}
	relay := h.newRelay(t, s, 100*time.Millisecond, drain)
	if err := relay.Run(ctx); err != nil && s.fate == nil {
		t.Errorf("Run: %v", err)
	}
	h.takeovers.Add(int64(relay.Stats().Taken))
}

var errDead = fmt.Errorf("%w: this process is dead", store.ErrUnavailable)

// mortal is a store whose process meets its fate before or after one call.
type mortal struct {
	store.Relay
	at    int64
	after bool
	fate  func()
	calls atomic.Int64
	dead  atomic.Bool
}

func (s *mortal) call(body func() error) error {
	mine := s.calls.Add(1) == s.at && s.fate != nil
	if mine && !s.after {
		s.fate()
	}
	if s.dead.Load() {
		return errDead
	}
	err := body()
	if mine && s.after {
		s.fate()
	}
	if s.dead.Load() {
		return errDead
	}
	return err
}

func (s *mortal) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) (held []store.Slot, err error) {
	err = s.call(func() error { held, err = s.Relay.Acquire(ctx, owner, lease, limit); return err })
	return held, err
}

func (s *mortal) Renew(ctx context.Context, held store.Slot, lease time.Duration) error {
	return s.call(func() error { return s.Relay.Renew(ctx, held, lease) })
}

func (s *mortal) Release(ctx context.Context, held store.Slot) error {
	return s.call(func() error { return s.Relay.Release(ctx, held) })
}

func (s *mortal) Fetch(ctx context.Context, held store.Slot, limit int) (p store.Page, err error) {
	err = s.call(func() error { p, err = s.Relay.Fetch(ctx, held, limit); return err })
	return p, err
}

func (s *mortal) Advance(ctx context.Context, held store.Slot, p store.Page, holds []store.Hold) error {
	return s.call(func() error { return s.Relay.Advance(ctx, held, p, holds) })
}

func (s *mortal) Due(ctx context.Context, held store.Slot, limit int) (due []store.Hold, err error) {
	err = s.call(func() error { due, err = s.Relay.Due(ctx, held, limit); return err })
	return due, err
}

func (s *mortal) Subjects(ctx context.Context, held store.Slot) (subjects map[string]bool, err error) {
	err = s.call(func() error { subjects, err = s.Relay.Subjects(ctx, held); return err })
	return subjects, err
}

func (s *mortal) Update(ctx context.Context, held store.Slot, holds []store.Hold) error {
	return s.call(func() error { return s.Relay.Update(ctx, held, holds) })
}
