// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/reprise-go/reprise"
)

// Token marks the rows of one attempt, so that an attempt whose COMMIT was not
// answered can recognise its own work (rule L7).
type Token [16]byte

// NewToken returns a token that nobody had before.
func NewToken() (t Token) {
	// crypto/rand.Read never fails: it ends the process instead (Go 1.24).
	_, _ = rand.Read(t[:])
	return t
}

// Claim asks to execute an intent.
type Claim struct {
	Intent reprise.Intent
	// Token is random and new for every execution of work.
	Token Token
	// Number is the client's count of this attempt, from 1; 0 when unknown. A
	// driver may use it to choose between claiming first and looking up first;
	// it must never decide on it.
	Number int
	// Held, if not nil, is called by Execute in each run of the work at most once,
	// when the intent is this attempt's: before work is called, or, in a driver
	// whose claim rides with the first statement of work, once that was answered.
	// It is never called when a record exists, and it must not block.
	Held func()
}

// Completion is what an attempt leaves in the ledger.
type Completion struct {
	Result reprise.Result
	// OmitBody stores the result as a tombstone at once: the effect is on record,
	// its body is not (rule L8).
	OmitBody bool
	// Retention is how long the body is kept from now, by the database's clock.
	Retention time.Duration
	// Tombstone is how long the key is refused from now; not shorter than
	// Retention.
	Tombstone time.Duration
}

// Entry is one record of the ledger.
type Entry struct {
	ID     reprise.IntentID
	Intent reprise.Intent
	State  reprise.State
	Token  Token

	// Result is complete in StateCompleted; a tombstone has Status and Reference.
	Result reprise.Result

	// Input, Epoch, LeaseUntil and Drives belong to staged runs. Drives counts
	// how often the run was started or taken over.
	Input      []byte
	Epoch      int64
	LeaseUntil time.Time
	Drives     int

	// ClaimedAt is when the record was made, CompletedAt when it was completed,
	// ExpiresAt when its body goes, TombstoneUntil when the key may be forgotten.
	// All by the database's clock; zero when not applicable.
	ClaimedAt, CompletedAt, ExpiresAt, TombstoneUntil time.Time
}

// Ledger keeps intents. The triple (caller, operation, key) is unique, compared
// byte by byte.
//
// Expiry is judged by the database's clock when a record is read: a completed
// record past ExpiresAt is returned as a tombstone without a body, and a
// tombstone past TombstoneUntil does not exist, whether or not Purge has run.
type Ledger[TTx any] interface {
	// Execute runs one attempt of the atomic mode: claim, work, stored result
	// and enqueued messages in one transaction (rules L1 to L3).
	//
	// When a record exists, it is returned with executed false, and work has no
	// effect: it is not called, or, in a driver whose claim rides with the first
	// statement of work, that statement fails without having reached the database,
	// or is dropped if it was left to the last message, and what work returns or
	// raises counts for nothing. Otherwise work runs,
	// its completion is stored, and the new record is returned with executed true, after COMMIT. Two concurrent calls
	// for one intent never both commit: one of them executes, the other returns
	// the record, ErrBusy or ErrConflict. Where the database can tell that what is
	// being executed at this moment is other content, an entry in StateInProgress
	// with another fingerprint is returned instead of ErrBusy (rule L6); of its
	// fields only the triple and the state mean something.
	//
	// work may run several times when the driver re-runs a transaction that the
	// database ended; an error or panic from work, or the end of its goroutine,
	// rolls back, keeps nothing, and is returned or repeated as it is. The error may be ErrConflict,
	// ErrUnavailable, ErrCommitUnknown, ErrBusy or ErrTxMisuse.
	//
	// ctx bounds the wait for the transaction to start and the work. COMMIT never
	// runs under a cancellable context.
	Execute(ctx context.Context, c Claim,
		work func(ctx context.Context, tx TTx) (Completion, error)) (e Entry, executed bool, err error)

	// Find returns the record of the triple in i, or ErrNotFound.
	Find(ctx context.Context, i reprise.Intent) (Entry, error)

	// Resolve establishes, on a fresh connection and behind the lock that Execute
	// takes, whether the attempt with this token was committed: the record if
	// there is one, whoever wrote it, and ErrNotFound when it is certain that
	// nothing was kept. Any other error means that it is still unknown.
	Resolve(ctx context.Context, i reprise.Intent) (Entry, error)

	// Entries lists records without inputs, headers and bodies, in the order of
	// their ids.
	Entries(ctx context.Context, f EntryFilter) ([]Entry, error)

	// Purge does one batch of at most limit records: bodies past ExpiresAt are
	// dropped, tombstones past TombstoneUntil are deleted. Records that are in
	// progress or unsettled are never touched. It returns how many records it
	// changed; less than limit means that it is done for now (rule L9).
	Purge(ctx context.Context, limit int) (int, error)

	Runs[TTx]
}

// EntryFilter chooses records. The zero value chooses the first 100.
type EntryFilter struct {
	// State, if not empty, chooses one state.
	State reprise.State
	// After is the id to continue after; zero starts at the beginning.
	After reprise.IntentID
	// Limit is 1 to 1000. Defaults to 100.
	Limit int
}

// Ownership names one holding of one run. Every write of the run is conditional
// on it (rule S2). None is given out twice, not even after the run was withdrawn
// or forgotten and the intent has begun anew. It ends with a takeover, not with
// the lease: an owner that nobody has replaced may still renew.
type Ownership struct {
	ID    reprise.IntentID
	Epoch int64
}

// Runs keeps staged runs: intents that call other systems and therefore last
// longer than one transaction. Leases are written and judged by the database's
// clock alone (rule S3).
type Runs[TTx any] interface {
	// Begin claims an intent for a staged run and commits the claim, with the
	// input that recovery needs to run it without its client.
	//
	// owned is true when the caller owns the run now: it was absent, or it was in
	// progress with the same fingerprint and its lease has lapsed, in which case
	// it is taken over under the next epoch. Otherwise the record is returned as
	// it is.
	Begin(ctx context.Context, c Claim, input []byte, lease time.Duration) (e Entry, owned bool, err error)

	// Takeover takes a run over by id if it is in progress and its lease has
	// lapsed; ErrLeaseLost if it is not. The record gets a token that nobody had
	// before, so that an attempt which still looks for its own claim does not take
	// this one for it.
	Takeover(ctx context.Context, id reprise.IntentID, lease time.Duration) (Entry, error)

	// Renew extends the lease to now + lease, or fails with ErrLeaseLost. A lease
	// of 0 gives the run up at once, so that anybody may take it over.
	Renew(ctx context.Context, o Ownership, lease time.Duration) error

	// Withdraw deletes a run that its owner gives up before any of its steps was
	// recorded: nothing of it happened, so the intent is absent again and the
	// next attempt runs at once (rule L12). A run that has a step is left as it
	// is, with an error; ErrLeaseLost if the epoch is no longer the caller's.
	Withdraw(ctx context.Context, o Ownership) error

	// Phase runs one atomic phase of a run: it checks and renews the lease first,
	// runs work, stores what work returns, and commits. ErrLeaseLost, or any
	// error of Execute, means that nothing of the phase was kept, but for
	// ErrCommitUnknown.
	Phase(ctx context.Context, o Ownership, lease time.Duration,
		work func(ctx context.Context, tx TTx) (PhaseWrites, error)) error

	// Steps returns the recorded steps of a run in the order they were made.
	Steps(ctx context.Context, id reprise.IntentID) ([]Step, error)

	// Lapsed lists runs in progress whose lease has lapsed, in the order of their
	// ids, after the given one.
	Lapsed(ctx context.Context, after reprise.IntentID, limit int) ([]Entry, error)
}

// PhaseWrites is what a phase leaves beside the business rows of its handler.
type PhaseWrites struct {
	// Step, if not nil, is inserted, or replaces the planned step of the same name.
	// A step that is done is never written again: the phase fails.
	Step *Step
	// Complete, if not nil, ends the run with this result. It must not be set
	// twice: completed is final (rule S5).
	Complete *Completion
}

// StepState is how far a step has come.
type StepState string

const (
	// StepPlanned: the request is frozen. It may have been sent, so after a crash
	// a planned call is unknown (rule S4).
	StepPlanned StepState = "planned"
	// StepDone: the step's outcome is on record and is never made again.
	StepDone StepState = "done"
)

// Step is the recovery point of one phase or one downstream call.
type Step struct {
	// Name is unique within the run.
	Name string
	// Key under which the call is made; empty for a phase.
	Key reprise.Key
	// State of the step.
	State StepState
	// Request is frozen before the first byte is sent: the same key always
	// carries the same bytes.
	Request []byte
	// Outcome and Response are the evidence once the step is done.
	Outcome  reprise.Outcome
	Response []byte
}
