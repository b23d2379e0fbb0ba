// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"cmp"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
)

const (
	defaultMaxBuffer = 1 << 20
	defaultMaxSpool  = 1 << 20
)

// Transport is an http.RoundTripper that makes several attempts at a request.
// The zero value is ready to use, and a Transport is safe for concurrent use. Its
// fields must not be changed once it is in use.
//
// RoundTrip returns the last answer when the last attempt had one, whatever its
// status is, with a body that can be read; ErrorOf says what it proves about the
// call. Otherwise it returns a *retry.Error. Redirects are left to http.Client,
// which sends a request of its own for each; a key that was made here stays the
// same across them.
type Transport struct {
	// Base makes the attempts. Defaults to http.DefaultTransport.
	//
	// Proof that a request was never sent comes from net/http/httptrace. A Base
	// that does not support it gives none, so that its failures are Unknown.
	Base http.RoundTripper

	// Policy says how often, how long and how fast. Its Safety and Classify are
	// for retry.Do and are not used here. Defaults to retry.Interactive.
	Policy *retry.Policy

	// Contract says what the service promises of the operation that a request
	// addresses, as FromContract does. An operation that takes a key, whether it
	// must have one or may, is sent under a new one if its caller names none.
	// Requests that it does not know are treated by their method. Defaults to
	// knowing none.
	Contract func(*http.Request) (contract.Operation, bool)

	// Ledger says that every server behind this Transport keeps a ledger for
	// requests that are not safe or idempotent by their method: POST and PATCH get
	// a key and are sent again under it. Defaults to false; then only operations
	// that Contract calls keyed do, and those endpoints whose earlier answers show
	// a ledger's marks.
	Ledger bool

	// MaxBuffer is the longest answer, in bytes, that is read before the attempt
	// is judged. One that is longer is handed over as a stream, and so is an
	// answer of unknown length to a safe method, and a text/event-stream: if those
	// break off, reading their body fails. Defaults to 1 MiB; negative turns
	// reading ahead off, and with it the proof that answers are complete.
	MaxBuffer int64

	// MaxSpool is how much, in bytes, is kept of a request's content that can be
	// read only once, to send it again. When more than that was sent, the call has
	// had its only attempt. Requests with GetBody, which http.NewRequest sets for
	// bytes and strings, and files need none of it. Defaults to 1 MiB; negative
	// keeps nothing.
	MaxSpool int64

	// Prepare is called for each attempt, when key, content and all other fields
	// are set, to sign it or to renew its token. It may change the request's
	// header, and read its content through GetBody, which is nil if the content
	// can be read only once. An error means that the attempt was not made.
	Prepare func(*http.Request) error

	// OnAttempt is told of every attempt when it has ended, after the Policy's own
	// OnAttempt.
	OnAttempt func(reprise.Attempt)

	ledgers endpoints
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := &call{transport: t, request: req}
	if err := c.start(ctx); err != nil {
		closeBody(req)
		return nil, err
	}
	attempts := false
	defer func() { c.content.done(req, attempts) }()
	for {
		record, err := c.Begin(ctx)
		if err != nil {
			return nil, err
		}
		attempts = true
		a := c.attempt(ctx, record.Number)
		resp, verdict := a.run(record.Number) //nolint:contextcheck // The attempt is a context.
		d := c.End(ctx, verdict)
		if t.OnAttempt != nil {
			all := c.Attempts()
			t.OnAttempt(all[len(all)-1])
		}
		if again := d.Retry && c.repeatable(); !again {
			if resp != nil {
				return resp, nil
			}
			return nil, c.failure()
		}
		a.discard(resp)
		if err := c.Wait(ctx, d); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections closes those of Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) maxBuffer() int64 { return cmp.Or(t.MaxBuffer, defaultMaxBuffer) }
func (t *Transport) maxSpool() int64  { return cmp.Or(t.MaxSpool, defaultMaxSpool) }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // It was not read; there is nothing to lose.
	}
}
