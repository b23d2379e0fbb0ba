// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
)

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
