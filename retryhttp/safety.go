// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"net/http"
	"sync"

	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/wire"
)

// FromContract returns what Transport.Contract wants, from a contract that was
// declared in code or read with contract.Parse.
func FromContract(c *contract.Contract) func(*http.Request) (contract.Operation, bool) {
	return func(r *http.Request) (contract.Operation, bool) {
		return c.Match(methodOf(r), r.URL.EscapedPath())
	}
}

// promise returns what is promised of the operation that req addresses: by the
// contract, which is declared, or else its safety by its method.
func (t *Transport) promise(req *http.Request) (op contract.Operation, declared bool) {
	if t.Contract != nil {
		if op, ok := t.Contract(req); ok {
			return op, true
		}
	}
	return contract.Operation{Safety: t.safetyOf(methodOf(req))}, false
}

// safetyOf returns what a method promises (RFC 9110 section 9.2), where QUERY is
// the one of draft-ietf-httpbis-safe-method-w-body.
func (t *Transport) safetyOf(method string) contract.Safety {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY":
		return contract.Safe
	case http.MethodPut, http.MethodDelete:
		return contract.Idempotent
	}
	if t.Ledger {
		return contract.Keyed
	}
	return contract.Unsafe
}

func methodOf(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// maxEndpoints bounds what is remembered of servers.
const maxEndpoints = 1024

// endpoints remembers where answers to keyed requests carried a ledger's marks.
// It knows methods and concrete paths and not hosts alone: that one operation of
// a service remembers keys does not mean that the next one does, and a POST that
// is wrongly believed to be safe to repeat happens twice. The zero value is
// empty.
//
// Concrete paths have no end, so what was not asked for lately is forgotten, in
// generations: what is used moves into the younger one, and when that is full,
// the older one goes. What is forgotten is learned again from its next answer.
type endpoints struct {
	mu         sync.RWMutex
	young, old map[endpoint]struct{}
}

type endpoint struct{ method, scheme, host, path string }

func endpointOf(r *http.Request) endpoint {
	return endpoint{methodOf(r), r.URL.Scheme, r.URL.Host, r.URL.Path}
}

func (e *endpoints) has(r *http.Request) bool {
	at := endpointOf(r)
	e.mu.RLock()
	_, young := e.young[at]
	_, old := e.old[at]
	e.mu.RUnlock()
	if old && !young {
		e.keep(at)
	}
	return young || old
}

func (e *endpoints) learn(r *http.Request) {
	if !e.has(r) {
		e.keep(endpointOf(r))
	}
}

func (e *endpoints) keep(at endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.young == nil || len(e.young) == maxEndpoints/2 {
		e.young, e.old = make(map[endpoint]struct{}), e.young
	}
	e.young[at] = struct{}{}
}

// stored reports whether an answer to a keyed request comes from a ledger's
// record (rule W5).
func stored(h http.Header) bool {
	return replayed(h) || len(h[wire.HeaderExpires]) > 0
}

func replayed(h http.Header) bool { return h.Get(wire.HeaderReplayed) == "true" }
