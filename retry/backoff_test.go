// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/retry"
)

func TestBackoff(t *testing.T) {
	t.Parallel()

	t.Run("C4 the ceiling doubles up to the cap", func(t *testing.T) {
		t.Parallel()
		b := retry.Backoff{Base: 50 * time.Millisecond, Cap: time.Second}
		for n, want := range []int64{50, 100, 200, 400, 800, 1000, 1000} {
			if got := b.Ceiling(n).Milliseconds(); got != want {
				t.Errorf("Ceiling(%d) = %d ms, want %d", n, got, want)
			}
		}
	})

	t.Run("C4 the ceiling is min(cap, base*2^n) for any numbers", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			base, limit := rapid.Int64().Draw(t, "base"), rapid.Int64().Draw(t, "cap")
			n := rapid.IntRange(-2, 200).Draw(t, "n")
			got := retry.Backoff{Base: time.Duration(base), Cap: time.Duration(limit)}.Ceiling(n)
			want := new(big.Int)
			if base > 0 && limit > 0 && n >= 0 {
				want.Lsh(big.NewInt(base), uint(n))
				if want.Cmp(big.NewInt(limit)) > 0 {
					want.SetInt64(limit)
				}
			}
			if want.Cmp(big.NewInt(int64(got))) != 0 {
				t.Fatalf("Ceiling = %d, want %s", got, want)
			}
		})
	})

	t.Run("C4 the jitter is full", func(t *testing.T) {
		t.Parallel()
		b := retry.Backoff{Base: time.Second, Cap: time.Minute}
		for random, want := range map[float64]time.Duration{
			0: 0, 0.25: time.Second, 0.5: 2 * time.Second, math.Nextafter(1, 0): 4*time.Second - 1,
			-1: 0, 1: 4 * time.Second, 2: 4 * time.Second, math.NaN(): 0,
			math.Inf(1): 4 * time.Second, math.Inf(-1): 0,
		} {
			if got := b.Wait(2, random); got != want {
				t.Errorf("Wait(2, %v) = %v, want %v", random, got, want)
			}
		}
	})
}

// FuzzBackoff is avast/retry-go#159, sethvargo/go-retry#37, App-vNext/Polly#2163
// and others: backoff that panics, turns negative or stops waiting at the 34th to
// 39th retry.
func FuzzBackoff(f *testing.F) {
	const huge = math.MaxInt64
	for _, n := range []int{0, 1, 34, 35, 36, 39, 62, 63, 64, 1024, math.MaxInt32, -1} {
		f.Add(n, int64(time.Second), int64(20*time.Second), 0.999)
		f.Add(n, int64(1), int64(huge), math.Nextafter(1, 0))
		f.Add(n, int64(huge), int64(huge), 0.5)
		f.Add(n, int64(0), int64(0), 0.5)
		f.Add(n, int64(-5), int64(1), math.NaN())
	}
	f.Fuzz(func(t *testing.T, n int, base, limit int64, random float64) {
		b := retry.Backoff{Base: time.Duration(base), Cap: time.Duration(limit)}
		if d := b.Wait(n, random); d < 0 || d > max(0, b.Cap) {
			t.Errorf("%+v: Wait(%d, %v) = %v, outside 0 to Cap", b, n, random, d)
		}
		if n >= 0 && n < math.MaxInt && b.Ceiling(n) > b.Ceiling(n+1) {
			t.Errorf("%+v: the ceiling falls from %d to %d", b, n, n+1)
		}
	})
}
