// SPDX-License-Identifier: Apache-2.0

package mysql

import "sync"

// wakes hands the news of a commit to every relay of this process that listens:
// with one channel for all, a relay without a slot would take it from the one
// that has something to do. The zero value is ready.
type wakes struct {
	mu       sync.Mutex
	channels []chan struct{}
}

// listen returns a channel that receives a value after each commit from now on.
func (w *wakes) listen() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan struct{}, 1)
	w.channels = append(w.channels, c)
	return c
}

// announce never blocks: a value that nobody has read yet says the same.
func (w *wakes) announce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.channels {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
