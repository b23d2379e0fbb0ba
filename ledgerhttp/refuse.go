// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/wire"
)

// Refuse returns an error that answers a request with status, code and detail
// and keeps nothing: the transaction is rolled back, the key stays free, and a
// later request under the same key is executed anew (rule L14). It is for what
// may be otherwise next time: 404 for an order that does not exist yet, 403, or
// 409 while something else is at work. A decision that must be remembered is a
// ProblemResult instead.
//
// status is 400 to 599; any other becomes 500. detail is shown to the caller.
// The error is an *reprise.Error with outcome NotProcessed, which the rollback
// proves. Config.Callers, decoders and work may return it, also wrapped. A staged
// handler may return it before its first step, which withdraws the claim; later
// the run has to end in a result.
func Refuse(status int, code reprise.Code, detail string) error {
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	e := &reprise.Error{Code: code, Status: status, Detail: detail, Outcome: reprise.NotProcessed}
	// Beneath it lies the same answer in the ledger's own form, because in a staged
	// run any other error leaves the intent in progress.
	e.Err = ledger.Refuse(problemResult(wire.ProblemOf(e)))
	return e
}

// asError takes the ledger's form of a refusal off, so that it comes back as an
// error and is answered with all the fields of a problem.
func asError(err error) error {
	e, ok := errors.AsType[*reprise.Error](err)
	if !ok {
		return err
	}
	if _, ok := errors.AsType[*ledger.Refusal](e.Err); !ok {
		return err
	}
	bare := *e
	bare.Err = nil
	return &bare
}

// Invalid returns an error that answers 400 with code "invalid" and keeps
// nothing, so that a request that is not valid never burns its key. The text is
// shown to the caller.
func Invalid(format string, args ...any) error {
	return &reprise.Error{
		Code: reprise.CodeInvalid, Outcome: reprise.NotProcessed,
		Detail: fmt.Sprintf(format, args...),
	}
}

// ProblemResult returns a result that is a problem document: a decision against
// the request, such as 402 for a declined card, that is stored and answers every
// repeat. What the work wrote is committed with it.
//
// status is 400 to 499, and none of those that the ledger does not store: 401,
// 403, 408, 412, 425, 428 and 429 (rule L14). detail is shown to the caller.
func ProblemResult(status int, code reprise.Code, detail string) reprise.Result {
	return problemResult(wire.Decision(status, code, detail))
}

func problemResult(p wire.Problem) reprise.Result {
	body, _ := p.MarshalJSON() // A document of strings and numbers always marshals.
	return reprise.Result{
		Status: p.Status,
		Header: map[string][]string{"Content-Type": {wire.ContentTypeProblem}},
		Body:   body,
	}
}
