// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
