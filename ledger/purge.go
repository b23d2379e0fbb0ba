// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"time"
)

// purgePause is left between two batches, so that a purge of a large table
// doesn't keep the writers of requests waiting.
const purgePause = 10 * time.Millisecond

// Purge drops results and tombstones whose time is over, in batches, until there
// are none, and returns how many records it changed. Unfinished work is never
// touched (rule L9).
func (l *Ledger[TTx]) Purge(ctx context.Context) (int, error) {
	total := 0
	for {
		n, err := l.driver.Purge(ctx, l.config.PurgeBatch)
		total += n
		l.counts.purged.Add(uint64(n))
		if err != nil || n < l.config.PurgeBatch {
			return total, err
		}
		if !pause(ctx, purgePause) {
			return total, ctx.Err()
		}
	}
}

// RunPurge purges every Config.PurgeEvery until ctx ends, and then returns nil.
// A purge that fails is tried again at the next turn.
func (l *Ledger[TTx]) RunPurge(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := l.Purge(ctx)
		switch {
		case ctx.Err() != nil: // Stopped on its way.
		case err != nil:
			l.config.Logger.WarnContext(ctx, "ledger: purge could not finish", "error", err)
		case n > 0:
			l.config.Logger.DebugContext(ctx, "ledger: purged", "records", n)
		}
		pause(ctx, l.config.PurgeEvery)
	}
	return nil
}
