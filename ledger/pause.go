// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/internal/backoff"
)

// spaced returns the pause before try n, from 0, with a random part, so that
// losers of one conflict don't meet again.
func spaced(n int, base, limit time.Duration) time.Duration {
	return backoff.Jittered(backoff.Ceiling(base, limit, n))
}

// pause sleeps for d, or until ctx ends; it reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	return backoff.Sleep(ctx, d) == nil
}
