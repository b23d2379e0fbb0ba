// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/backoff"
)

// gate stands before the sink. While the destination answers, it is open. Once a
// delivery reports that the destination is unavailable, everybody waits here and
// one message at a time goes through as a probe, with growing pauses, until one
// is answered. Nothing that waits here uses up an attempt.
type gate struct {
	first, limit time.Duration // the shortest and the longest pause

	mu      sync.Mutex
	pause   time.Duration // 0 while the gate is open
	until   time.Time     // no probe before
	probing bool
	changed chan struct{} // closed at each change, then replaced
}

func newGate(first, limit time.Duration) *gate {
	return &gate{first: first, limit: limit, changed: make(chan struct{})}
}

// enter waits until a delivery may start. probe is for leave. ok is false when
// ctx or closing ended first.
func (g *gate) enter(ctx context.Context, closing <-chan struct{}) (probe, ok bool) {
	for {
		g.mu.Lock()
		if g.pause == 0 {
			g.mu.Unlock()
			return false, true
		}
		wait := time.Until(g.until)
		if !g.probing && wait <= 0 {
			g.probing = true
			g.mu.Unlock()
			return true, true
		}
		changed, probing := g.changed, g.probing
		g.mu.Unlock()

		var due <-chan time.Time
		if !probing {
			due = time.After(wait)
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
			return false, false
		case <-closing:
			return false, false
		}
	}
}

// leave reports how a delivery ended. It returns true when that opened or shut
// the gate.
func (g *gate) leave(probe bool, err error) bool {
	away := isUnavailable(err)
	silent := errors.Is(err, errNoAnswer) || errors.Is(err, errInterrupted)

	g.mu.Lock()
	defer g.mu.Unlock()
	wasOpen := g.pause == 0
	if probe {
		g.probing = false
	}
	switch {
	case !away && !silent:
		if wasOpen {
			return false
		}
		g.pause = 0
	case wasOpen && away:
		g.pause = g.first
	case probe && !wasOpen:
		g.pause = min(2*g.pause, g.limit)
	default:
		return false // It started before the gate was shut: no new evidence.
	}
	g.until = time.Now().Add(backoff.Jittered(g.pause))
	close(g.changed)
	g.changed = make(chan struct{})
	return wasOpen != (g.pause == 0)
}
