// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"net/http"
	"sync"
)

// connections knows which connections have not brought a request yet, and which
// are at one. http.Server.Shutdown waits five seconds for the former, as if they
// were the latter. The zero value is ready for use, also concurrently.
type connections struct {
	mu     sync.Mutex
	states map[net.Conn]http.ConnState
}

// note is the ConnState of a server.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state != http.StateNew && state != http.StateActive {
		delete(c.states, conn)
		return
	}
	if c.states == nil {
		c.states = make(map[net.Conn]http.ConnState)
	}
	c.states[conn] = state
}

// closeSilent closes the connections on which no request has come.
func (c *connections) closeSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, state := range c.states {
		if state == http.StateNew {
			_ = conn.Close() // Its peer has gone; so much the better.
		}
	}
}

// active counts the connections that are at a request.
func (c *connections) active() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, state := range c.states {
		if state == http.StateActive {
			n++
		}
	}
	return n
}
