// SPDX-License-Identifier: Apache-2.0

package proxy

import "time"

// Kind names what the proxy does with one request.
type Kind string

const (
	// Pass forwards the request and the answer.
	Pass Kind = "pass"
	// DropBefore resets the connection after reading the request, without
	// forwarding it: the server never sees it.
	DropBefore Kind = "drop-before"
	// CommitThenReset forwards, reads the whole answer, and resets. To the client
	// it is indistinguishable from DropBefore.
	CommitThenReset Kind = "commit-then-reset"
	// CommitThenClose forwards, reads the whole answer, and closes in good order.
	CommitThenClose Kind = "commit-then-close"
	// HeadersThenReset forwards, answers the status line and the header, and resets.
	HeadersThenReset Kind = "headers-then-reset"
	// Truncate forwards and answers half of the body under the full
	// Content-Length, then closes.
	Truncate Kind = "truncate"
	// Hang forwards, reads the whole answer, and says nothing until the client
	// goes away or the proxy closes.
	Hang Kind = "hang"
	// SwapStatus forwards, reads the whole answer, and answers Fault.Status in its
	// place, as a gateway that lost its patience would.
	SwapStatus Kind = "swap-status"
	// Answer answers Fault.Status without forwarding.
	Answer Kind = "answer"
	// Duplicate forwards Fault.Copies copies at the same time, each on its own
	// connection, and answers the first answer that is complete.
	Duplicate Kind = "duplicate"
	// Late holds the request back, does not answer it, and forwards it when
	// Fault.Release is closed: the copy that arrives after everything was over.
	Late Kind = "late"
)

// Fault is what a Plan decides for one request. The zero value passes.
type Fault struct {
	// Kind of fault. Defaults to Pass.
	Kind Kind
	// Status to answer, for SwapStatus and Answer.
	Status int
	// RetryAfter to send with Status, in whole seconds. Defaults to none.
	RetryAfter time.Duration
	// Copies to forward, for Duplicate. Defaults to 2.
	Copies int
	// Release lets a Late request go. Required for Late.
	Release <-chan struct{}
	// Upstream, if not nil, is called after the upstream's answer was read whole
	// and before the proxy acts. Status is 0 when there was no answer.
	Upstream func(status int)
}

// Plan decides what happens to a request. It is called once for each request
// that arrived whole, in the order of arrival on one connection and concurrently
// across connections.
type Plan func(Request) Fault

// Request is what a plan may look at.
type Request struct {
	// Number counts the requests of this proxy from 1.
	Number int64
	// Method and Path, without the query.
	Method, Path string
	// Key is the Idempotency-Key field as it was sent, and Seen how many requests
	// with it came before this one.
	Key  string
	Seen int
	// Header of the request; the plan must not change it.
	Header map[string][]string
}
