// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/store"
)

// extend notes that the lease was granted by a call that began then. The lease
// runs by the database's clock from some moment after that, so that this side
// always takes it for shorter than it is.
func (s *slot) extend(began time.Time) {
	until := began.Add(s.relay.config.Lease)
	s.lease.Store(&until)
}

// holds reports whether the lease is certainly still ours.
func (s *slot) holds() bool { return time.Now().Before(*s.lease.Load()) }

// renew extends the lease until work ends. It ends work by itself when the lease
// is lost, or can't be renewed in time, which comes to the same: somebody else
// may deliver from the slot now (rule O4).
func (s *slot) renew(work context.Context) {
	lease := s.relay.config.Lease
	wait := lease / 3
	for {
		select {
		case <-work.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		ctx, cancel := context.WithDeadline(work, *s.lease.Load())
		err := s.relay.store.Renew(ctx, s.held, lease)
		cancel()
		switch {
		case work.Err() != nil:
			return
		case err == nil:
			s.extend(began)
			wait = lease / 3
			continue
		case errors.Is(err, store.ErrLeaseLost) || !s.holds():
			s.drop()
			return
		}
		s.log.Warn("outbox: could not renew the lease; trying again", "error", err)
		wait = min(lease/12, time.Until(*s.lease.Load()))
	}
}

// release gives the slot up, so that the next relay need not wait for the lease
// to lapse.
func (s *slot) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.relay.config.Drain)
	defer cancel()
	return s.relay.store.Release(ctx, s.held)
}
