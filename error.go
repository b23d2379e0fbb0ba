// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"errors"
	"time"
)

// Code names one kind of failure. Programs act on codes, never on messages.
// Codes are append-only: they cross the wire (rule W1) and are stored.
type Code string

// The codes of the protocol. Applications may use codes of their own beside
// these; a code that a reader does not know means what its status means.
const (
	// CodeKeyMissing: the operation requires a key and the request has none.
	CodeKeyMissing Code = "key-missing"
	// CodeKeyInvalid: the key is malformed, given twice, or minted in the future.
	CodeKeyInvalid Code = "key-invalid"
	// CodeKeyReused: the key already names an intent with another fingerprint.
	CodeKeyReused Code = "key-reused"
	// CodeKeyExpired: the key is too old for its result to be known. Nothing was
	// executed by this request; whether an earlier one was is for reconciliation.
	CodeKeyExpired Code = "key-expired"
	// CodeInProgress: another attempt at the same intent is at work.
	CodeInProgress Code = "in-progress"
	// CodeOutcomeUnknown: the work may have been committed and it could not be
	// established whether it was. The same key finds out.
	CodeOutcomeUnknown Code = "outcome-unknown"
	// CodeStoreUnavailable: the store could not be reached before any work was
	// done. Keyed operations fail closed.
	CodeStoreUnavailable Code = "store-unavailable"
	// CodePreconditionRequired: the operation demands If-Match and it is missing.
	CodePreconditionRequired Code = "precondition-required"
	// CodePreconditionFailed: the resource is not at the version the client read.
	CodePreconditionFailed Code = "precondition-failed"
	// CodeInvalid: the request is malformed or its content is not valid.
	CodeInvalid Code = "invalid"
	// CodeUnauthenticated: the request carries no credentials, or none that hold.
	CodeUnauthenticated Code = "unauthenticated"
	// CodeTooLarge: the request's body is over the limit.
	CodeTooLarge Code = "too-large"
	// CodeLeaseLost: another worker owns the run now; this one must stop.
	CodeLeaseLost Code = "lease-lost"
	// CodeInternal: the handler failed. Its transaction was rolled back.
	CodeInternal Code = "internal"
)

// Error is the one error type of the library. Compare codes with errors.Is and
// the sentinels below, or with CodeOf.
type Error struct {
	// Code is the kind of failure.
	Code Code
	// Op is the function that failed, as "package.Function". May be empty.
	Op string
	// Detail is a sentence for a person, safe to show to the caller. It never
	// contains stored data, keys of others or text from a database.
	Detail string
	// Outcome is what is known of the effect. Defaults to Unknown.
	Outcome Outcome
	// RetryAfter is how long to wait before trying again; 0 means no advice.
	RetryAfter time.Duration
	// Status is the HTTP status for a code of the application's own, 400 to 599.
	// Defaults to what the protocol says of the code (rule W2), and to 500 for a
	// code that it does not know.
	Status int
	// Reference names the result that an expired key once had, if it is kept.
	Reference string
	// Err is the cause. It is for logs, not for the caller of an API.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error of the same code, so that
// errors.Is(err, reprise.ErrInProgress) asks for the code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Sentinels for errors.Is. They match every *Error of their code.
var (
	ErrKeyMissing       error = &Error{Code: CodeKeyMissing}
	ErrKeyInvalid       error = &Error{Code: CodeKeyInvalid}
	ErrKeyReused        error = &Error{Code: CodeKeyReused}
	ErrKeyExpired       error = &Error{Code: CodeKeyExpired}
	ErrInProgress       error = &Error{Code: CodeInProgress}
	ErrOutcomeUnknown   error = &Error{Code: CodeOutcomeUnknown}
	ErrStoreUnavailable error = &Error{Code: CodeStoreUnavailable}
	ErrLeaseLost        error = &Error{Code: CodeLeaseLost}
)

// CodeOf returns the code of the first *Error in err's chain, CodeInternal for
// any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
