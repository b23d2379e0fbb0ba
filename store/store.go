// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
)

// Driver is what a database provides. All methods are safe for concurrent use.
type Driver[TTx any] interface {
	Ledger[TTx]
	Outbox[TTx]
	Inbox[TTx]

	// Transact runs work in one transaction and commits it, with the messages
	// that work enqueued written last. An error or a panic from work rolls back.
	//
	// Errors are those of Execute.
	Transact(ctx context.Context, work func(ctx context.Context, tx TTx) error) error
}

// The errors a driver returns, beside those of work. They are matched with
// errors.Is; a driver wraps the database's own error beneath them. Every error
// that is none of these, and not work's own, means that the transaction was
// rolled back for certain.
var (
	// ErrConflict: the database ended the transaction in favour of another one
	// (serialisation failure, deadlock, busy). Nothing was kept. The whole
	// transaction may be run again.
	ErrConflict = errors.New("store: transaction lost a conflict")
	// ErrUnavailable: the database could not be reached or could not write (no
	// connection, disk full, read-only). Nothing was kept.
	ErrUnavailable = errors.New("store: database unavailable")
	// ErrCommitUnknown: COMMIT was sent and its answer was not understood. The
	// transaction may have been kept. Ledger.Resolve finds out.
	ErrCommitUnknown = errors.New("store: commit outcome unknown")
	// ErrBusy: another transaction holds the same intent at this moment.
	ErrBusy = errors.New("store: intent is held by another transaction")
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("store: not found")
	// ErrLeaseLost: the epoch is no longer the caller's. It must stop, and must
	// not write again.
	ErrLeaseLost = errors.New("store: lease lost")
	// ErrDuplicateMessage: a message was enqueued under the source and id of one
	// that is still kept. Nothing was kept, and running it again changes nothing.
	ErrDuplicateMessage = errors.New("store: another message in the outbox has this source and id")
	// ErrTxMisuse: work ended or tried to end the transaction by itself, or used
	// it after it had failed. The transaction was rolled back.
	ErrTxMisuse = errors.New("store: transaction misused by its handler")
)
