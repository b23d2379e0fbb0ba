// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// retryAfter is the advice given with every answer that asks for the same key
// again (rule W3).
const retryAfter = time.Second

// mismatch is the error for a fingerprint that differs from the recorded one.
//
// Fingerprints of two versions can't be compared. The record is then neither
// replayed, nor is the client told to take a new key, which could do its work
// twice: a server that knows the version will tell (rule F1).
func mismatch(recorded, asked reprise.Fingerprint) error {
	if recorded.Version() != asked.Version() {
		return &reprise.Error{
			Code: reprise.CodeOutcomeUnknown, Op: "ledger.Do", RetryAfter: retryAfter,
			Detail: "the record of this key was made by another version of the service; try again with the same key",
		}
	}
	return &reprise.Error{
		Code: reprise.CodeKeyReused, Op: "ledger.Do", Outcome: reprise.NotProcessed,
		Detail: "this key stands for another request; a new intent needs a new key",
	}
}

func inProgress(cause error) error {
	return &reprise.Error{
		Code: reprise.CodeInProgress, Op: "ledger.Do", RetryAfter: retryAfter, Err: cause,
		Detail: "another attempt at this intent is at work; try again with the same key",
	}
}

// keyExpired claims nothing of the outcome, even where the reference shows that
// there was one: its result can't be read any more.
func keyExpired(reference string) error {
	detail := "this key is too old for its result to be known; find out whether it was executed before using a new key"
	if reference != "" {
		detail = "this key was used and its result is no longer kept; the reference names what it made"
	}
	return &reprise.Error{Code: reprise.CodeKeyExpired, Op: "ledger.Do", Detail: detail, Reference: reference}
}

func outcomeUnknown(op string, cause error) error {
	return &reprise.Error{
		Code: reprise.CodeOutcomeUnknown, Op: op, RetryAfter: retryAfter, Err: cause,
		Detail: "it could not be established whether this was done; the same key finds out",
	}
}

func storeUnavailable(op string, cause error) error {
	return &reprise.Error{
		Code: reprise.CodeStoreUnavailable, Op: op, Outcome: reprise.NotProcessed, RetryAfter: retryAfter, Err: cause,
		Detail: "the store can't be used at the moment, and nothing was done; try again with the same key",
	}
}

func leaseLost(cause error) error {
	return &reprise.Error{Code: reprise.CodeLeaseLost, Op: "ledger.Run", Err: cause, Detail: "another worker owns this run now"}
}

// internal is for a failure after which nothing was kept for certain.
func internal(op string, cause error) error {
	return &reprise.Error{Code: reprise.CodeInternal, Op: op, Outcome: reprise.NotProcessed, Err: cause}
}

// errGone marks what is told to a caller who doesn't listen any more.
var errGone = errors.New("the caller has left")

// gone is for a caller whose context ended before anything was done for it.
func gone(ctx context.Context) error {
	return &reprise.Error{
		Code: reprise.CodeInternal, Op: "ledger.Do", Outcome: reprise.NotProcessed,
		Detail: "the request ended before its work began", Err: fmt.Errorf("%w: %w", errGone, context.Cause(ctx)),
	}
}

// rolledBack turns the error of work whose transaction was rolled back for
// certain into what the caller is told. Work's own *reprise.Error is kept, with
// the rollback as evidence where it claimed nothing itself; the original is
// never written to, because it may be a sentinel.
func rolledBack(op string, err error) error {
	inner, ok := errors.AsType[*reprise.Error](err)
	switch {
	case !ok && errors.Is(err, store.ErrUnavailable):
		return storeUnavailable(op, err)
	case !ok:
		return internal(op, err)
	}
	e := *inner
	if e.Outcome == reprise.Unknown && e.Code != reprise.CodeOutcomeUnknown {
		e.Outcome = reprise.NotProcessed
	}
	if error(inner) != err { //nolint:errorlint // whether something is wrapped around it is the question.
		e.Err = err
	}
	return &e
}
