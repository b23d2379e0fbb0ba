// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"

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
	spent     *retry.Error // Set when the content can't be sent again.
	keyField  bool         // The request carries the key already.
	safe      bool         // It promises to have no effects.
	first     attempt
}

// start fixes everything that all attempts share.
func (c *call) start(ctx context.Context) error {
	t, req := c.transport, c.request
	op, declared := t.promise(req)
	safety := op.Safety
	key, field, invalid := chooseKey(req, op)
	if key != "" && safety == contract.Unsafe && !declared && t.ledgers.has(req) {
		safety = contract.Keyed
	}
	c.safe, c.keyField = safety == contract.Safe, field
	c.Start(ctx, t.Policy, safety, key)
	if invalid != nil {
		return c.Stop(retry.ReasonFinal, invalid)
	}
	if err := c.content.init(req, t.maxSpool()); err != nil {
		return c.Stop(retry.ReasonBody, err)
	}
	return nil
}

// repeatable reports whether the content can be sent again.
func (c *call) repeatable() bool {
	if err := c.content.spent(); err != nil {
		c.spent = c.Stop(retry.ReasonBody, err)
	}
	return c.spent == nil
}

// failure returns how the call ended without success.
func (c *call) failure() *retry.Error {
	if c.spent != nil {
		return c.spent
	}
	e := c.Failure()
	if _, ok := errors.AsType[*contentError](e.Err); ok {
		e.Reason = retry.ReasonBody
	}
	return e
}

// header returns the fields of attempt n, a copy where it differs from the
// request's own.
func (c *call) header(n int) http.Header {
	h := c.request.Header
	// A safe request that is made for the first time has nothing to tell.
	tell := n > 1 || !c.safe || len(h[wire.HeaderRetryContext]) > 0
	if !tell && (c.Key() == "" || c.keyField) && c.transport.Prepare == nil {
		return h
	}
	h = shallow(h)
	if c.Key() != "" && !c.keyField {
		wire.SetKey(h, c.Key())
	}
	if tell {
		h[wire.HeaderRetryContext] = retryContext(n, c.transport.Policy.Options().MaxAttempts)
	}
	if c.transport.Prepare != nil {
		h = h.Clone() // It may write into the values too.
	}
	return h
}

func shallow(h http.Header) http.Header {
	c := make(http.Header, len(h)+2)
	maps.Copy(c, h)
	return c
}

// firsts holds the field's lines of first attempts, by the policies' MaxAttempts:
// nearly all requests send one of a few. Nobody may write into them, as nobody
// below an http.RoundTripper may write into a request.
var firsts sync.Map

// retryContext returns the lines of the request's Retry-Context field (rule W4).
func retryContext(n, most int) []string {
	if n == 1 {
		if lines, ok := firsts.Load(most); ok {
			return lines.([]string)
		}
	}
	h := make(http.Header, 1)
	wire.RetryContext{Attempt: n, Max: most}.Set(h)
	lines := slices.Clip(h[wire.HeaderRetryContext])
	if n == 1 && most <= 100 {
		firsts.Store(most, lines)
	}
	return lines
}
