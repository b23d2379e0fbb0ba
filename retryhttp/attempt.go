// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/wire"
)

// attempt is one request that is given to Base, and the context of it.
type attempt struct {
	context.Context

	call    *call
	request http.Request
	limit   time.Time
	cancel  context.CancelFunc // Nil if nothing but the call's context ends it.
	timer   *time.Timer
	probe   probe
	answer  buffered
}

// attempt makes the nth attempt, which has begun. Its limit covers the answer's
// header and what is read ahead of its body, and no more: a body that is handed
// over may take as long as the caller's context allows.
func (c *call) attempt(ctx context.Context, n int) *attempt {
	a := &c.first
	if n > 1 {
		a = new(attempt)
	}
	a.Context, a.call = ctx, c
	if limit, ok := c.Limit(ctx); ok {
		a.limit = limit
		a.Context, a.cancel = context.WithCancel(ctx)
		a.timer = time.AfterFunc(time.Until(limit), a.cancel)
	}
	return a
}

// expired reports whether the attempt has reached its limit. It is asked before
// release.
func (a *attempt) expired() bool {
	return a.cancel != nil && a.Err() != nil && a.call.request.Context().Err() == nil
}

// Deadline implements context.Context, so that Prepare and Base see how much time
// the attempt has.
func (a *attempt) Deadline() (time.Time, bool) {
	if a.limit.IsZero() {
		return a.Context.Deadline()
	}
	return a.limit, true
}

// Value implements context.Context. The call is found through the request of an
// answer.
func (a *attempt) Value(key any) any {
	if key == keyOfCall {
		return a.call
	}
	return a.Context.Value(key)
}

// release ends the attempt's context. An answer's body that is read after that
// fails.
func (a *attempt) release() {
	if a.cancel != nil {
		a.timer.Stop()
		a.cancel()
	}
}

// run makes the attempt and judges it. The response is nil if none came to its
// end.
func (a *attempt) run(n int) (*http.Response, retry.Verdict) {
	if err := a.build(n); err != nil {
		a.release()
		_, final := errors.AsType[*contentError](err)
		return nil, retry.Verdict{Outcome: reprise.NotProcessed, Final: final, Trigger: "prepare", Err: err}
	}
	resp, err := a.call.transport.base().RoundTrip(&a.request)
	if resp == nil && err == nil {
		err = errors.New("retryhttp: Base returned neither an answer nor an error")
	}
	if err != nil {
		v := a.judgeError(err)
		a.release()
		return nil, v
	}
	if c, _ := callBehind(resp); c != a.call || a.hidden() {
		resp.Request = a.visible()
	}
	sends, reused := max(a.probe.count(), 1), a.probe.reused.Load()
	status := resp.StatusCode
	resp, v := a.judgeAnswer(resp)
	v.Status, v.Sends, v.Reused = status, sends, reused
	return resp, v
}

// build makes the request. Its GetBody is nil, so that nothing below can send the
// content a second time on its own account (rule C3).
func (a *attempt) build(n int) error {
	c := a.call
	a.request = *c.request.WithContext(httptrace.WithClientTrace(a, a.probe.hooks()))
	a.request.Header = c.header(n)
	body, length, err := c.content.open(c.request, n)
	if err != nil {
		return &contentError{err}
	}
	a.request.Body, a.request.ContentLength, a.request.GetBody = body, length, nil
	if prepare := c.transport.Prepare; prepare != nil {
		a.request.GetBody = c.content.getBody(c.request)
		if err := prepare(&a.request); err != nil {
			closeBody(&a.request)
			return err
		}
		a.request.GetBody = nil
	}
	a.hideKey()
	return nil
}

// hideKey keeps http.Transport from sending a request without content twice.
// It does that when a connection that was used before breaks before an answer,
// if the header holds an entry "Idempotency-Key" or "X-Idempotency-Key"; a nil
// GetBody stops it only for requests with content. It looks for the canonical
// name, which field names on the wire don't need (RFC 9110 section 5.1). Where
// something else stands in between, which may look for the field itself, it
// stays as it is, and Attempt.Sends tells of a second sending.
func (a *attempt) hideKey() {
	r := &a.request
	if _, direct := a.call.transport.base().(*http.Transport); !direct || hasContent(r) {
		return
	}
	switch methodOf(r) {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return // Resent for their method.
	}
	for _, name := range hiddenNames {
		if values, ok := r.Header[name.canonical]; ok {
			r.Header = shallow(r.Header)
			delete(r.Header, name.canonical)
			r.Header[name.hidden] = values
		}
	}
}

var hiddenNames = []struct{ canonical, hidden string }{
	{wire.HeaderKey, "idempotency-key"},
	{"X-Idempotency-Key", "x-idempotency-key"},
}

func (a *attempt) hidden() bool {
	for _, name := range hiddenNames {
		if _, ok := a.request.Header[name.hidden]; ok {
			return true
		}
	}
	return false
}

// visible returns the request as the caller should see it in an answer. The one
// that was sent is not changed back: it may still be read.
func (a *attempt) visible() *http.Request {
	if !a.hidden() {
		return &a.request
	}
	r := a.request
	r.Header = shallow(r.Header)
	for _, name := range hiddenNames {
		if values, ok := r.Header[name.hidden]; ok {
			delete(r.Header, name.hidden)
			r.Header[name.canonical] = values
		}
	}
	return &r
}
