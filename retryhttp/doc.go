// SPDX-License-Identifier: Apache-2.0

// Package retryhttp is package retry as an http.RoundTripper: put a Transport
// into an http.Client, and requests that are safe to repeat are repeated.
//
// It decides from evidence (rule C1): whether the request was put on a
// connection at all, as net/http/httptrace reports it; what the answer says; and
// whether the answer came to its end. An answer that is small enough is read
// before it is believed, so that half of one is never taken for success.
//
// Which requests may be sent again when their effect is unknown follows from the
// contract of the service, or else from the method (RFC 9110 section 9.2.2). A
// POST with an idempotency key is one of them only if the server is known to
// keep a ledger of keys, because sending a key to a server that ignores it
// protects nobody (rule C10).
package retryhttp
