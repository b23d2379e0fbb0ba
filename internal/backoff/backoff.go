// SPDX-License-Identifier: Apache-2.0

// Package backoff computes how long to wait before something is tried again.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Ceiling returns min(limit, base*2^n), the longest wait before try n, from 0.
// It is total: it saturates at limit instead of overflowing, because a shift over
// the edge would make the longest wait the shortest, and is 0 when base or limit
// is not positive or n is negative.
func Ceiling(base, limit time.Duration, n int) time.Duration {
	switch {
	case n < 0 || base <= 0 || limit <= 0:
		return 0
	case n >= 63 || base > limit>>n:
		return limit
	}
	return base << n
}

// Jittered returns a random duration from d/2 to d, so that those who fell into
// step fall out of it. d must not be negative.
func Jittered(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// Sleep waits for d, and returns ctx's error if ctx ends before or with it.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
