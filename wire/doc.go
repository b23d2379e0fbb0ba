// SPDX-License-Identifier: Apache-2.0

// Package wire turns the words of the protocol into HTTP fields and problem
// documents, and back: both directions in one place, so that a client and a
// server that never share code still mean the same thing.
//
// What stands here: the idempotency key (rules K1 to K8), the fingerprint of a
// request (F1 to F7), problem documents (W1, W2), waiting (W3), the retry
// context (W4), replay markers (W5) and entity tags (W6). Everything in this
// package is a pure function of its arguments, but for the clock that
// ReadProblem reads, and is safe for concurrent use.
package wire

// The header fields of the protocol, in canonical form.
const (
	// HeaderKey carries the idempotency key of a request (rule K7).
	HeaderKey = "Idempotency-Key"
	// HeaderRetryContext carries RetryContext, in both directions (rule W4).
	HeaderRetryContext = "Retry-Context"
	// HeaderReplayed is "true" on an answer that was stored by an earlier
	// attempt (rule W5).
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderExpires is the HTTP-date until which the stored answer can be
	// replayed (rule W5).
	HeaderExpires = "Idempotency-Expires"
)
