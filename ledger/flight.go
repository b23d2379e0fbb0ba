// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// flights is the single flight of this process: of all callers with one intent,
// one leads and speaks to the store, the others wait in memory. Waiting callers
// hold no connection, so a hot key can't starve the others. It only saves work:
// between processes the store decides.
type flights struct {
	mu sync.Mutex
	m  map[flightKey]*flight
}

// flightKey is the identity of an intent.
type flightKey struct {
	caller    reprise.Caller
	operation reprise.Operation
	key       reprise.Key
}

// flight is one intent while somebody is interested in it. All fields are
// guarded by flights.mu.
type flight struct {
	waiters int
	// led says that somebody leads, and bound that the leader holds the claim: from
	// then on the key stands for the leader's fingerprint (rule L6). A leader that
	// is only looking must not turn others away, because the record it is about to
	// find may be theirs.
	led, bound  bool
	fingerprint reprise.Fingerprint
	// entry or err is what the leader established for everybody.
	settled bool
	entry   store.Entry
	err     error
	// changed is closed when any of this changes. It is nil while nobody waits for
	// that, which is nearly always.
	changed chan struct{}
}

func (f *flight) wake() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// seat is the lead of a flight.
type seat struct {
	flights *flights
	key     flightKey
	flight  *flight
}

// join returns the lead of the intent's flight, or what its leader established,
// or an error: of ctx, CodeKeyReused, or CodeInProgress after deadline.
func (g *flights) join(ctx context.Context, in reprise.Intent, deadline time.Time) (*seat, store.Entry, error) {
	k := flightKey{in.Caller, in.Operation, in.Key}
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.m[k]
	if f == nil {
		if g.m == nil {
			g.m = make(map[flightKey]*flight)
		}
		f = &flight{}
		g.m[k] = f
	}
	if !f.led {
		return g.take(k, f, in), store.Entry{}, nil
	}

	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	f.waiters++
	defer func() {
		f.waiters--
		g.forget(k, f)
	}()
	for {
		switch {
		case f.settled && f.err != nil:
			return nil, store.Entry{}, f.err
		case f.settled:
			e := f.entry
			e.Result = copyResult(e.Result)
			return nil, e, nil
		case !f.led:
			return g.take(k, f, in), store.Entry{}, nil
		case f.bound && f.fingerprint != in.Fingerprint:
			return nil, store.Entry{}, mismatch(f.fingerprint, in.Fingerprint)
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		g.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = gone(ctx)
		case <-timer.C:
			err = inProgress(nil)
		}
		g.mu.Lock()
		if err != nil {
			return nil, store.Entry{}, err
		}
	}
}

// take gives the lead to the caller. g.mu is held.
func (g *flights) take(k flightKey, f *flight, in reprise.Intent) *seat {
	f.led, f.bound, f.fingerprint = true, false, in.Fingerprint
	return &seat{flights: g, key: k, flight: f}
}

// forget frees a flight that nobody is interested in. g.mu is held.
func (g *flights) forget(k flightKey, f *flight) {
	if !f.led && f.waiters == 0 && g.m[k] == f {
		delete(g.m, k)
	}
}

// bind says that the leader holds the claim.
func (s *seat) bind() {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if !s.flight.bound {
		s.flight.bound = true
		s.flight.wake()
	}
}

// settle gives everybody who waits the record that answers them, and ends the
// flight: callers that come later ask the store.
func (s *seat) settle(e store.Entry) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if s.flight.waiters > 0 {
		// The leader's caller may do with its own result what it likes.
		e.Result = copyResult(e.Result)
	}
	s.flight.settled, s.flight.entry = true, e
	delete(s.flights.m, s.key)
	s.flight.wake()
}

// fail gives everybody who waits the same error, and ends the flight.
func (s *seat) fail(err error) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	s.flight.settled, s.flight.err = true, err
	delete(s.flights.m, s.key)
	s.flight.wake()
}

// leave hands the lead to one of those who wait. It does nothing after settle
// or fail.
func (s *seat) leave() {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if s.flight.settled {
		return
	}
	s.flight.led, s.flight.bound = false, false
	s.flight.wake()
	s.flights.forget(s.key, s.flight)
}
