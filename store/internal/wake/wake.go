// SPDX-License-Identifier: Apache-2.0

// Package wake tells relays of this process that messages were committed.
package wake

import "sync"

// List hands the news of a commit to every relay of this process that listens:
// with one channel for all, a relay without a slot would take it from the one
// that has something to do. The zero value is ready. Safe for concurrent use.
type List struct {
	mu       sync.Mutex
	channels []chan struct{}
}

// Listen returns a channel that receives a value after each commit from now on.
func (l *List) Listen() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{}, 1)
	l.channels = append(l.channels, c)
	return c
}

// Announce never blocks: a value that nobody has read yet says the same.
func (l *List) Announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.channels {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
