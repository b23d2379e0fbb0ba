// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/store"
)

// keepLease renews the lease for as long as the drive lasts, and ends the
// context that it returns when the lease is lost. It sets r.alive and r.stop.
//
// A drive that goes on after that does no harm, because every write is fenced by
// the epoch (rule S2); it is ended so that it does no work for nothing.
func (r *Run[TTx]) keepLease(ctx context.Context) context.Context {
	lease := r.ledger.config.Lease
	ctx, cancel := context.WithCancelCause(ctx)
	renewing, done := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(lease / 3)
		defer tick.Stop()
		held := time.Now()
		for {
			select {
			case <-renewing.Done():
				return
			case <-tick.C:
			}
			at := time.Now()
			err := r.ledger.driver.Renew(renewing, r.owner, lease)
			switch {
			case err == nil:
				held = at
			case renewing.Err() != nil:
				return
			case errors.Is(err, store.ErrLeaseLost) || time.Since(held) >= lease:
				// Without an answer for a whole lease, somebody else may own it.
				cancel(leaseLost(err))
				return
			}
		}
	})
	r.alive = ctx
	// The heart stops before the lease is given up, or it would take it again.
	r.stop = func() {
		done()
		wg.Wait()
		cancel(nil)
	}
	return ctx
}
