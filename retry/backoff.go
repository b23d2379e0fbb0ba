// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"time"

	"github.com/reprise-go/reprise/internal/backoff"
)

// Backoff says how long to wait before trying again: a random time between zero
// and a ceiling that doubles with every retry ("full jitter", rule C4). Clients
// that failed together then come back one by one. The zero value never waits.
type Backoff struct {
	// Base is the ceiling of the first wait.
	Base time.Duration
	// Cap is the highest ceiling.
	Cap time.Duration
}

// Ceiling returns the longest wait before retry n, which counts from 0:
// min(Cap, Base*2^n). It is total: it saturates at Cap instead of overflowing,
// and is never negative, for any n, Base and Cap.
func (b Backoff) Ceiling(n int) time.Duration {
	return backoff.Ceiling(b.Base, b.Cap, n)
}

// Wait returns the wait before retry n for a random number in [0, 1); a number
// outside that range, or none at all, is taken as the nearest in it.
func (b Backoff) Wait(n int, random float64) time.Duration {
	return scale(b.Ceiling(n), random)
}

// scale returns the part of d that random, in [0, 1), stands for.
func scale(d time.Duration, random float64) time.Duration {
	switch {
	case d <= 0 || !(random > 0): // NaN too.
		return 0
	case random >= 1:
		return d
	default:
		// The product of a float64 may be rounded up to one beyond d.
		return min(d, time.Duration(random*float64(d)))
	}
}
