// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
)

// riverqueue/river#1402 (bug 41): after 310 errors the retry was scheduled 292
// years in the past, because the exponent overflowed, and ran in a hot loop.
func TestJudge(t *testing.T) {
	t.Parallel()
	t.Run("bug 41 a delay is never outside its bounds, to attempt 1,000,000", func(t *testing.T) {
		t.Parallel()
		r, err := NewRelay(noStore{}, SinkFunc(nil), &RelayConfig{
			MaxAttempts: 2_000_000, RetryCap: 1<<63 - 1, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		for attempts := range 1_000_000 {
			h := r.judge(store.Hold{Attempts: attempts}, errors.New("boom"))
			if h.State != store.HoldRetry || h.Attempts != attempts+1 || h.Delay < 0 {
				t.Fatalf("after %d attempts: %+v", attempts, h)
			}
		}
	})

	t.Run("the first retry is due within RetryBase", func(t *testing.T) {
		t.Parallel()
		r, err := NewRelay(noStore{}, SinkFunc(nil), &RelayConfig{RetryBase: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for attempts, limit := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			longest := time.Duration(0)
			for range 500 {
				longest = max(longest, r.judge(store.Hold{Attempts: attempts}, errors.New("boom")).Delay)
			}
			if longest >= limit || longest < limit*9/10 {
				t.Errorf("the longest of 500 delays after attempt %d is %v, want just below %v", attempts+1, longest, limit)
			}
		}
	})
}

type noStore struct{ store.Relay }
