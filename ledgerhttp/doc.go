// SPDX-License-Identifier: Apache-2.0

// Package ledgerhttp serves operations over net/http so that a repeat of a
// request under the same idempotency key is answered and not executed.
//
// There are three forms. Atomic is a typed handler that receives the caller's
// own transaction. Staged is for operations that call other systems. Middleware
// puts the same promise around an http.Handler of any router. Each belongs to an
// operation of the contract, which says whether it takes a key, and how long its
// results are remembered.
//
// Every form keeps one order. The caller is authenticated and authorised
// (Config.Callers), so that nobody is shown a stored answer who may not see it
// now. The body is read to its end, within limits, before anything is claimed.
// The content is decoded and validated, which burns no key. Then come the key,
// the ledger and the answer, and no byte of an answer is sent before COMMIT. A
// precondition is checked inside the work (CheckIfMatch), so that a repeat is
// answered before it, and a success without it is rolled back (rule W6).
//
// A stored answer has an Idempotency-Expires field, and a repeat has the same
// status, stored fields and body with "Idempotent-Replayed: true" (rules L4, W5).
// The result of Atomic and of Staged has stored fields only; under Middleware
// the first answer, and no repeat, also has the other fields that the handler
// wrote, such as Set-Cookie (rule L5).
// Problems are documents of RFC 9457 (rule W1). A handler's error that is not an
// *reprise.Error is answered 500 after a proven rollback, and logged; its text is
// never shown.
//
// A service that is called by browsers from other origins has to allow the
// request field Idempotency-Key and expose the response fields
// Idempotent-Replayed, Idempotency-Expires, Retry-After and ETag in its CORS
// configuration.
package ledgerhttp
