// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/reprise-go/reprise"
)

// deliver works on the chains of b until each has ended or has been left.
func (s *slot) deliver(work context.Context, closing <-chan struct{}, b *batch, source Wake) {
	open, waiting := len(b.chains), b.chains
	ended := make(chan struct{}, len(b.chains))
	patience := time.NewTimer(s.relay.config.Patience)
	defer patience.Stop()
	for open > 0 {
		var worker chan<- struct{}
		if len(waiting) > 0 {
			worker = s.relay.workers
		}
		select {
		case worker <- struct{}{}:
			c := waiting[0]
			waiting = waiting[1:]
			c.token = s.relay.workers
			s.workers.Go(func() {
				defer func() { // also when the sink ends its goroutine, as a test's FailNow does
					if !b.finish(c) {
						ended <- struct{}{}
					}
				}()
				s.serve(work, closing, b, c, source)
			})
		case <-ended:
			open--
		case <-patience.C:
			left, again := b.leave(s.relay.config.Patience, s.relay.config.Timeout, s.relay.slow)
			for _, h := range left {
				s.left[idOf(h.Message)] = h.Message
			}
			open -= len(left)
			patience.Reset(again)
		}
	}
}

// serve delivers the messages of one chain, until the slot has gone on without it.
func (s *slot) serve(work context.Context, closing <-chan struct{}, b *batch, c *chain, source Wake) {
	for {
		i, ok := b.current(c)
		if !ok {
			return
		}
		h := b.holds[i]
		attempted, err := s.attempt(work, closing, b, c, h.Message)
		if !attempted {
			return
		}
		verdict := s.relay.judge(h, err)
		s.relay.observe(Delivery{
			Message: h.Message, Attempt: h.Attempts + 1, Took: c.took, State: verdict.State, Err: err, Wake: source,
		})
		if !b.decide(c, verdict, s.relay.config.Order) {
			s.lateMu.Lock()
			s.late = append(s.late, verdict)
			s.lateMu.Unlock()
			notify(s.settled)
			return
		}
	}
}

// attempt delivers m, and while the destination is unavailable it waits and
// tries again. attempted is false when it was stopped before there was an answer.
func (s *slot) attempt(
	work context.Context, closing <-chan struct{}, b *batch, c *chain, m reprise.Message,
) (attempted bool, err error) {
	for {
		probe, ok := s.relay.gate.enter(work, closing)
		if !ok {
			return false, nil
		}
		if work.Err() != nil || !s.holds() {
			s.relay.gate.leave(probe, errInterrupted)
			return false, nil
		}
		mine := true
		func() {
			b.started(c)
			defer func() { mine = b.paused(c) }()
			err = s.call(work, m)
		}()
		if s.relay.gate.leave(probe, err) {
			s.relay.gateChanged(err)
		}
		if !isUnavailable(err) || !mine {
			return true, err
		}
		s.relay.count(func(c *Stats) { c.Unavailable++ })
	}
}

// call makes one delivery. What the sink says after its context has ended is no
// answer, and a panic is an error of this message alone.
func (s *slot) call(work context.Context, m reprise.Message) (err error) {
	ctx, cancel := context.WithTimeout(work, s.relay.config.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("outbox: the sink panicked", "message", m.ID, "type", m.Type, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("the sink panicked: %v", v)
		}
	}()
	err = s.relay.sink.Deliver(ctx, m)
	switch {
	case work.Err() != nil:
		return unanswered(errInterrupted, err)
	case ctx.Err() != nil:
		return unanswered(errNoAnswer, err)
	}
	return err
}
