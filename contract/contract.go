// SPDX-License-Identifier: Apache-2.0

// Package contract says what each endpoint promises about being called again:
// its retry safety, whether it takes a key, which precondition it demands, how
// long its results are remembered, and how each effect outside the database is
// kept from happening twice (rule W7).
//
// An operation is declared once, in code. The server serves all of them at Path
// as JSON; a client reads that to choose its policy per endpoint.
package contract

import (
	"time"

	"github.com/reprise-go/reprise"
)

// Path is where a server serves its contract document.
const Path = "/.well-known/retry-contract"

// Safety is what happens when an operation is executed more than once.
type Safety string

const (
	// Safe: it has no effect that anybody asked for (RFC 9110 section 9.2.1).
	Safe Safety = "safe"
	// Idempotent: twice has the effect of once, without a key.
	Idempotent Safety = "idempotent"
	// Keyed: it is safe to repeat under the same idempotency key.
	Keyed Safety = "keyed"
	// Unsafe: it must not be repeated unless it was proven not to have happened.
	// It is what an undeclared safety has to be taken for; New demands that it is
	// declared.
	Unsafe Safety = "unsafe"
)

// KeyRule says whether an operation takes an idempotency key.
type KeyRule string

// The key rules. KeyNone is the zero value's meaning: a key is ignored.
const (
	KeyNone     KeyRule = "none"
	KeyOptional KeyRule = "optional"
	KeyRequired KeyRule = "required"
)

// Precondition is what a write demands of the version that its caller read.
type Precondition string

// The preconditions. PreconditionNone is the zero value's meaning.
const (
	PreconditionNone Precondition = "none"
	IfMatch          Precondition = "if-match"
)

// Mode is how the ledger executes an operation.
type Mode string

// The modes. ModeNone is the zero value's meaning: the ledger is not used.
const (
	ModeNone Mode = "none"
	Atomic   Mode = "atomic"
	Staged   Mode = "staged"
)

// Means is how an effect outside the database is kept from happening twice.
type Means string

// The means.
const (
	ByOutbox        Means = "outbox"
	ByDownstreamKey Means = "downstream-key"
	ByProbe         Means = "probe"
)

// Effect is one effect of an operation outside its database.
type Effect struct {
	Name string
	By   Means
}

// Operation is the promise of one endpoint.
type Operation struct {
	// Name identifies the operation in the ledger. It must not change while its
	// keys are remembered.
	Name reprise.Operation
	// Method and Path are those of net/http's patterns, such as "POST" and
	// "/orders/{id}/payments".
	Method string
	Path   string

	Safety       Safety
	Key          KeyRule
	Precondition Precondition
	Mode         Mode

	// Retention is how long a result's body is kept, from completion, in whole
	// seconds. Defaults to DefaultRetention; 0 for operations that take no key.
	Retention time.Duration
	// Tombstone is how long the key is refused, also from completion, in whole
	// seconds. It must not be shorter than Retention. Defaults to DefaultTombstone,
	// or to Retention if that is longer; 0 for operations that take no key.
	Tombstone time.Duration
	// Wait is how long a repeat waits for an attempt in progress before it is
	// answered 409, in whole milliseconds, or NoWait. Defaults to DefaultWait; 0 for
	// operations that take no key.
	Wait time.Duration

	// Effects outside the database.
	Effects []Effect

	// FingerprintHeaders are request fields that belong to what was asked, such
	// as an API version; Volatile are top-level JSON members that do not, such as
	// a time stamp that a client makes anew for each attempt. Neither is part of
	// the served document.
	FingerprintHeaders []string
	Volatile           []string
}
