// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/store"
)

// riverqueue/river#1402 (bug 41): after 310 errors the retry was scheduled 292
// years in the past, because the exponent overflowed, and ran in a hot loop.
func TestCeiling(t *testing.T) {
	t.Parallel()
	t.Run("bug 41 doubles up to the limit and stays there", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
			limit := time.Duration(rapid.Int64Range(int64(base), int64(1<<63-1)).Draw(t, "limit"))
			attempt := rapid.IntRange(-1, 1_000_000).Draw(t, "attempt")
			got, next := ceiling(base, limit, attempt), ceiling(base, limit, attempt+1)
			switch {
			case got < base || got > limit:
				t.Fatalf("ceiling = %v, want %v to %v", got, base, limit)
			case attempt <= 1 && got != base:
				t.Fatalf("first ceiling = %v, want %v", got, base)
			case attempt >= 1 && next != limit && next != 2*got:
				t.Fatalf("ceiling went from %v to %v, want the double or %v", got, next, limit)
			case attempt >= 64 && got != limit:
				t.Fatalf("ceiling of attempt %d = %v, want %v", attempt, got, limit)
			}
		})
	})

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
}

type noStore struct{ store.Relay }
