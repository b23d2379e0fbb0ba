// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/store"
)

// batch is a set of messages that a slot delivers together: one chain per
// subject, the chains side by side, each in order (rule O5).
type batch struct {
	holds  []store.Hold // as they were before
	chains []*chain

	// mu guards the verdicts and the chains: a chain may still be at work when the
	// slot has gone on without it.
	mu       sync.Mutex
	verdicts []store.Hold // what becomes of each; State "" means undecided

	attempted bool // something was delivered, or tried
}

// chain is the messages of one subject.
type chain struct {
	items []int         // positions in the batch
	next  int           // index of the item that is worked on
	since time.Time     // when its delivery started; zero while none is under way
	left  bool          // the slot has gone on without this chain
	token chan struct{} // where its worker's token is: to be taken out at the end
	took  time.Duration // of its last delivery
}

// newBatch arranges holds in chains. The messages of held subjects are blocked at
// once, and those that can't be read are parked at once.
func newBatch(holds []store.Hold, held func(subject string) bool) *batch {
	b := &batch{holds: holds, verdicts: make([]store.Hold, len(holds))}
	bySubject := make(map[string]*chain)
	stopped := make(map[string]bool)
	for i, h := range holds {
		subject := h.Message.Subject
		switch {
		case h.Unreadable != nil:
			b.verdicts[i] = park(h, fmt.Errorf("the stored message can't be read: %w", h.Unreadable))
			stopped[subject] = true
		case subject == "":
			b.chains = append(b.chains, &chain{items: []int{i}})
		case stopped[subject] || held(subject):
			b.verdicts[i] = block(h, "a held message of its subject")
		default:
			c := bySubject[subject]
			if c == nil {
				c = &chain{}
				bySubject[subject] = c
				b.chains = append(b.chains, c)
			}
			c.items = append(c.items, i)
		}
	}
	return b
}

// current returns the message that c has come to, or false when c is done or
// has been left.
func (b *batch) current(c *chain) (i int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.left || c.next == len(c.items) {
		return 0, false
	}
	return c.items[c.next], true
}

// started and paused stand around each delivery of c's current message.
func (b *batch) started(c *chain) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.since = time.Now()
}

// paused returns false when the slot has gone on without c.
func (b *batch) paused(c *chain) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.took, c.since = time.Since(c.since), time.Time{}
	return !c.left
}

// decide enters the verdict on c's current message and moves on; when it is held
// and order matters, the rest of the chain is blocked. It returns false, and
// enters nothing, when the slot has gone on without c.
func (b *batch) decide(c *chain, verdict store.Hold, order Order) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.left {
		return false
	}
	b.attempted = true
	b.verdicts[c.items[c.next]] = verdict
	c.next++
	if verdict.State != store.HoldDelivered && order == OrderBlock {
		b.blockRest(c, verdict.Message.ID)
	}
	return true
}

func (b *batch) blockRest(c *chain, behind string) {
	for ; c.next < len(c.items); c.next++ {
		i := c.items[c.next]
		b.verdicts[i] = block(b.holds[i], behind)
	}
}

// finish takes the token of c out, and reports whether c had been left.
func (b *batch) finish(c *chain) (left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-c.token
	return c.left
}

// leave goes on without the chains whose delivery has taken longer than
// patience, and moves their tokens to slow as far as there is room. Their current messages are held until timeout has passed, when no
// delivery of this relay can be under way any more, and what follows them is
// blocked. It returns those messages, and when to look again.
func (b *batch) leave(patience, timeout time.Duration, slow chan struct{}) (left []store.Hold, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	again = patience
	for _, c := range b.chains {
		if c.left || c.since.IsZero() {
			continue
		}
		took := time.Since(c.since)
		if took < patience {
			again = min(again, patience-took)
			continue
		}
		c.left, b.attempted = true, true
		select {
		case slow <- struct{}{}:
			<-c.token
			c.token = slow
		default:
		}
		h := b.holds[c.items[c.next]]
		h.State, h.Attempts, h.Delay = store.HoldRetry, h.Attempts+1, timeout
		h.Reason = "its delivery was still under way after " + patience.String()
		b.verdicts[c.items[c.next]] = h
		c.next++
		b.blockRest(c, h.Message.ID)
		left = append(left, h)
	}
	return left, again
}

// complete returns a verdict on every message, once no chain is at work any more
// that has not been left. Messages that were not attempted get one that keeps
// them in order: the first of its subject may go at once, the others wait for
// it. progress is false when there is nothing in it worth recording.
func (b *batch) complete() (verdicts []store.Hold, progress bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	progress = true
	for _, c := range b.chains {
		rest := c.items[c.next:]
		for n, i := range rest {
			progress = b.attempted
			h := b.holds[i]
			if n > 0 {
				b.verdicts[i] = block(h, b.holds[rest[0]].Message.ID)
				continue
			}
			h.State, h.Delay, h.Reason = store.HoldRetry, 0, "the relay stopped before its turn"
			b.verdicts[i] = h
		}
	}
	return b.verdicts, progress
}

// decided returns the verdicts that there are.
func (b *batch) decided() []store.Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(b.verdicts, func(v store.Hold) bool { return v.State == "" })
}
