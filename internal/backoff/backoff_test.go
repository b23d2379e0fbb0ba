// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/internal/backoff"
)

// riverqueue/river#1402 (bug 41): after 310 errors the retry was scheduled 292
// years in the past, because the exponent overflowed, and ran in a hot loop.
func TestCeiling(t *testing.T) {
	t.Parallel()
	t.Run("bug 41 doubles up to the limit and stays there", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
			limit := time.Duration(rapid.Int64Range(int64(base), math.MaxInt64).Draw(t, "limit"))
			n := rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(0, math.MaxInt-1)).Draw(t, "n")
			got, next := backoff.Ceiling(base, limit, n), backoff.Ceiling(base, limit, n+1)
			switch {
			case got < base || got > limit:
				t.Fatalf("Ceiling = %v, want %v to %v", got, base, limit)
			case n == 0 && got != base:
				t.Fatalf("first Ceiling = %v, want %v", got, base)
			case next != limit && next != 2*got:
				t.Fatalf("Ceiling went from %v to %v, want the double or %v", got, next, limit)
			case n >= 63 && got != limit:
				t.Fatalf("Ceiling of %d = %v, want %v", n, got, limit)
			}
		})
	})

	t.Run("nothing is waited for without a base, a limit or a try", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			base, limit time.Duration
			n           int
		}{{0, 1, 0}, {-1, 1, 0}, {1, 0, 0}, {1, -1, 5}, {1, 1, -1}, {math.MinInt64, math.MaxInt64, 62}} {
			if got := backoff.Ceiling(c.base, c.limit, c.n); got != 0 {
				t.Errorf("Ceiling(%d, %d, %d) = %v, want 0", c.base, c.limit, c.n, got)
			}
		}
	})

	t.Run("a base above the limit is cut to it", func(t *testing.T) {
		t.Parallel()
		if got := backoff.Ceiling(time.Minute, time.Second, 0); got != time.Second {
			t.Errorf("Ceiling = %v, want 1s", got)
		}
	})
}

func TestJittered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		if got := backoff.Jittered(d); got < d/2 || got > d {
			t.Fatalf("Jittered(%d) = %d, want %d to %d", d, got, d/2, d)
		}
	})
	lower, upper := 0, 0
	for range 1000 {
		if backoff.Jittered(time.Second) < 750*time.Millisecond {
			lower++
		} else {
			upper++
		}
	}
	if lower < 350 || upper < 350 {
		t.Errorf("%d of 1000 in the lower half and %d in the upper; want them spread", lower, upper)
	}
}
