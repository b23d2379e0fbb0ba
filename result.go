// SPDX-License-Identifier: Apache-2.0

package reprise

// State is where an intent stands in the ledger. An intent without a record is
// absent, which is the empty state. docs/state_machine.md draws the moves.
type State string

const (
	// StateInProgress: a staged run holds the intent under a lease.
	StateInProgress State = "in_progress"
	// StateCompleted: the result is stored and answers every repeat.
	StateCompleted State = "completed"
	// StateUnsettled: no attempt could establish the outcome; only reconciliation
	// leaves this state.
	StateUnsettled State = "unsettled"
	// StateTombstone: the result's body is gone. The key still refuses to run
	// and still names the result.
	StateTombstone State = "tombstone"
)

// Result is what an intent ended in, as it is answered now and on every repeat:
// byte for byte the same status, body and stored header fields (rule L4).
type Result struct {
	// Status is an HTTP status code, 200 to 499 when it is stored.
	Status int
	// Header holds the fields that belong to the result, such as Content-Type,
	// Location and ETag. Names are in canonical form. Only allow-listed names
	// are stored (rule L5).
	Header map[string][]string
	// Body may be empty.
	Body []byte
	// Reference names the resource, such as "/orders/ord_1". It outlives the
	// body: an expired key still says what it made. May be empty.
	Reference string
}
