// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"net/http"
	"sync"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/wire"
)

// call is one RoundTrip.
type call struct {
	retry.Call

	transport *Transport
	request   *http.Request // The caller's; never changed.
	content   content
	key       reprise.Key
	keyField  bool // The request carries the key already.
	safe      bool
	declared  bool  // By a contract, which then decides.
	stop      error // Why the content can't be sent again.
	first     attempt
}

// start fixes everything that all attempts share.
func (c *call) start() error {
	t, req := c.transport, c.request
	safety, declared := t.promise(req)
	c.safe, c.declared = safety == contract.Safe, declared
	c.Start(req.Context(), t.Policy, safety)
	var err error
	if c.key, c.keyField, err = chooseKey(req, safety); err != nil {
		return c.Stop(retry.ReasonFinal, err)
	}
	if c.key != "" && safety == contract.Unsafe && !declared && t.ledgers.has(req) {
		c.SetSafety(contract.Keyed)
	}
	if err := c.content.init(req, t.maxSpool()); err != nil {
		return c.Stop(retry.ReasonBody, err)
	}
	return nil
}

// failed returns how the call ended without success.
func (c *call) failed() *retry.Error {
	if c.stop != nil {
		return c.Stop(retry.ReasonBody, c.stop)
	}
	return c.Failure()
}

// header returns the fields of attempt n, a copy where it differs from the
// request's own.
func (c *call) header(a *attempt, n int) http.Header {
	h := c.request.Header
	// A safe request that is made for the first time has nothing to tell.
	tell := n > 1 || !c.safe || len(h[wire.HeaderRetryContext]) > 0
	if !tell && (c.key == "" || c.keyField) && c.transport.Prepare == nil {
		return h
	}
	if c.transport.Prepare != nil {
		h = h.Clone() // Prepare may write into the values too.
	} else {
		h = shallow(h)
	}
	if h == nil {
		h = make(http.Header)
	}
	if c.key != "" && !c.keyField {
		wire.SetKey(h, c.key)
	}
	if tell {
		a.told[0] = retryContext(n, c.transport.Policy.Options().MaxAttempts)
		h[wire.HeaderRetryContext] = a.told[:]
	}
	return h
}

func shallow(h http.Header) http.Header {
	c := make(http.Header, len(h)+2)
	for name, values := range h {
		c[name] = values
	}
	return c
}

// firsts holds the field of first attempts, by the policies' MaxAttempts: nearly
// all requests send one of a few.
var firsts sync.Map

// retryContext returns the value of the request's Retry-Context field (rule W4).
func retryContext(n, most int) string {
	if n == 1 {
		if s, ok := firsts.Load(most); ok {
			return s.(string)
		}
	}
	h := make(http.Header, 1)
	wire.RetryContext{Attempt: n, Max: most}.Set(h)
	s := h.Get(wire.HeaderRetryContext)
	if n == 1 && most <= 100 {
		firsts.Store(most, s)
	}
	return s
}
