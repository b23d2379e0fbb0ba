// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff returns the pause before try n, from 0: base doubled n times, at most
// limit, and then a random part between half and all of it, so that losers of
// one conflict don't meet again.
func backoff(n int, base, limit time.Duration) time.Duration {
	d := limit
	if n < 32 && base<<n < limit && base<<n > 0 {
		d = base << n
	}
	return d/2 + rand.N(d/2+1)
}

// pause sleeps for d, or until ctx ends; it reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
