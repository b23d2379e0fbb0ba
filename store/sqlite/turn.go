// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"sync"
)

// turn is a lock that is handed on in the order of asking, that a context can
// stop waiting for, and whose holder can see whether somebody waits: an empty
// queue is what closes a batch.
type turn struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
}

// acquire takes the turn, or returns ctx's error and has not taken it.
func (t *turn) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	if t.leave(mine) {
		return ctx.Err()
	}
	return nil // it was handed over at the same moment, and must be used
}

// leave takes mine out of the queue; false if it has the turn already.
func (t *turn) leave(mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w == mine {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// pass hands the turn to the one who has waited longest; false, with the turn
// still the caller's, if nobody waits.
func (t *turn) pass() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		return false
	}
	next := t.waiting[0]
	t.waiting = t.waiting[1:]
	close(next)
	return true
}

// release hands the turn on, or leaves it free.
func (t *turn) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	next := t.waiting[0]
	t.waiting = t.waiting[1:]
	close(next)
}
