// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/wire"
)

// CheckIfMatch evaluates the If-Match field of r against the entity tag of the
// resource as it stands, by strong comparison (RFC 9110 section 13.1.1). Call it
// inside the work, with what the transaction read, so that two writers can't both
// match, and a repeat is answered before it is asked (rule W6). An empty tag
// means that the resource does not exist.
//
// Work of an operation whose Precondition is contract.IfMatch has to call it: a
// success without a match in the same execution is rolled back and answered 500,
// because a comparison that was forgotten, or whose error was, would let every
// write through. r is the request that the decoder was given, or the handler
// under Middleware, or one with a context of theirs.
//
// The error is an *reprise.Error: CodePreconditionRequired (428) when the field
// is missing, CodePreconditionFailed (412) when it does not match, CodeInvalid
// when it is malformed. Each of them keeps nothing.
func CheckIfMatch(r *http.Request, currentETag string) error {
	present, match, err := wire.IfMatch(r.Header, currentETag)
	switch {
	case err != nil:
		return err
	case !present:
		return &reprise.Error{
			Code: reprise.CodePreconditionRequired, Outcome: reprise.NotProcessed,
			Detail: "send If-Match with the ETag of the version that you read",
		}
	case !match:
		return &reprise.Error{
			Code: reprise.CodePreconditionFailed, Outcome: reprise.Rejected,
			Detail: "the resource is not at the version in If-Match; read it again",
		}
	}
	if m, ok := r.Context().Value(matchKey{}).(*atomic.Bool); ok {
		m.Store(true)
	}
	return nil
}

// matchKey finds, in the context of a request, where CheckIfMatch notes a match.
type matchKey struct{}

// conditional returns work that keeps the promise of a precondition: what it
// answers with success was compared in the same execution. A decision against
// the request needs no comparison (RFC 9110 section 13.2.1).
func conditional[TTx any](a *admission, work ledger.Work[TTx]) ledger.Work[TTx] {
	if a.matched == nil {
		return work
	}
	return func(ctx context.Context, tx TTx) (reprise.Result, error) {
		a.matched.Store(false) // A match of a run that was rolled back is none.
		result, err := work(ctx, tx)
		if err == nil && result.Status < http.StatusBadRequest && !a.matched.Load() {
			return reprise.Result{}, fmt.Errorf("ledgerhttp: the contract promises if-match for operation %q, and its work succeeded "+
				"(status %d) without a match, so it was rolled back; call CheckIfMatch inside the work, with the request that was decoded "+
				"and the ETag that the transaction read, and return its error", a.op.Name, result.Status)
		}
		return result, err
	}
}
