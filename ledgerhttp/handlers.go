// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"context"
	"fmt"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
)

// Atomic returns the handler of an operation of mode atomic: work runs in one
// transaction together with the ledger's record and the messages it enqueues,
// and is answered after COMMIT (rules L1 to L4).
//
// decode reads and validates the request. It runs for every request, repeats
// included, before the ledger is asked, and must have no effect. Its error, like
// that of work, is answered as it says if it is an *reprise.Error (Invalid,
// Refuse), and with 500 otherwise; either way nothing is kept.
//
// work may run more than once, when the database ends its transaction in favour
// of another one; only the last run is kept. It must not reach beyond its
// transaction. Its ctx is not cancelled when the client goes away. The request
// is not passed to it: let decode put what it needs into In, such as the
// *http.Request for CheckIfMatch.
//
// Without a key, where the contract does not require one or the operation takes
// none, work runs in one transaction and is not recorded. Atomic panics if the
// contract does not declare op, or declares it as staged.
func Atomic[TTx, In any](
	s *Server[TTx], op reprise.Operation,
	decode func(*Request) (In, error),
	work func(ctx context.Context, tx TTx, in In) (reprise.Result, error),
) http.Handler {
	o := s.declared("Atomic", op, contract.Atomic, contract.ModeNone)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, in, err := accept(s, w, r, o, decode)
		if err != nil {
			s.fail(w, r, o, err)
			return
		}
		answer, err := execute(s.ledger, a, func(ctx context.Context, tx TTx) (reprise.Result, error) {
			result, err := work(ctx, tx, in)
			return result, asError(err)
		})
		if err != nil {
			s.fail(w, r, o, err)
			return
		}
		writeAnswer(w, answer)
	})
}

// Staged returns the handler of an operation of mode staged: st runs it in
// committed steps, so that it can call other systems (rules S1 to S8).
//
// decode is as in Atomic. encode turns what it returned into the input that the
// run is started with, by this request or by recovery after its process died;
// it must contain all that the run needs.
//
// Staged panics if the contract does not declare the operation of st as staged
// and its key as required, because without a key nobody could ask for the
// outcome, or if it declares a precondition, because a run goes on without the
// request, and nothing could see that the comparison was forgotten.
func Staged[TTx, In any](
	s *Server[TTx],
	decode func(*Request) (In, error),
	st *ledger.Staged[TTx],
	encode func(In) ([]byte, error),
) http.Handler {
	o := s.declared("Staged", st.Operation(), contract.Staged)
	if o.Key != contract.KeyRequired {
		panic("ledgerhttp: Staged: operation " + string(o.Name) + " must require a key in the contract")
	}
	if o.Precondition != contract.PreconditionNone {
		panic("ledgerhttp: Staged: operation " + string(o.Name) + " demands " + string(o.Precondition) +
			" in the contract, which is compared in one transaction with the write; serve it with Atomic, " +
			"or send the version with the content and compare it in the run")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, in, err := accept(s, w, r, o, decode)
		if err == nil {
			err = a.check()
		}
		var input []byte
		if err == nil {
			input, err = encode(in)
		}
		var answer ledger.Answer
		if err == nil {
			answer, err = st.Do(r.Context(), a.intent(), a.options(), input)
		}
		if err != nil {
			s.fail(w, r, o, err)
			return
		}
		writeAnswer(w, answer)
	})
}

// Safe returns the handler of an operation that the ledger has no part in, such
// as a GET, with the same authentication, limits, decoding and problems as the
// others. It has neither a transaction nor a key, so it panics if the contract
// declares a mode for op, a safety that is neither safe nor idempotent, or a
// precondition: Atomic serves those.
func Safe[TTx, In any](
	s *Server[TTx], op reprise.Operation,
	decode func(*Request) (In, error),
	read func(ctx context.Context, in In) (reprise.Result, error),
) http.Handler {
	o := s.declared("Safe", op, contract.ModeNone)
	if o.Safety != contract.Safe && o.Safety != contract.Idempotent {
		panic(fmt.Sprintf("ledgerhttp: Safe: operation %q is %s in the contract; only what is safe or idempotent can do "+
			"without a key and a transaction, so serve it with Atomic", o.Name, o.Safety))
	}
	if o.Precondition != contract.PreconditionNone {
		panic(fmt.Sprintf("ledgerhttp: Safe: operation %q demands %s in the contract, which is compared inside of a transaction; "+
			"serve it with Atomic", o.Name, o.Precondition))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, in, err := accept(s, w, r, o, decode)
		if err == nil {
			err = a.check()
		}
		var result reprise.Result
		if err == nil {
			result, err = read(r.Context(), in)
		}
		if err != nil {
			s.fail(w, r, o, err)
			return
		}
		writeAnswer(w, ledger.Answer{Result: result})
	})
}

// accept admits and decodes a request.
func accept[TTx, In any](
	s *Server[TTx], w http.ResponseWriter, r *http.Request, op contract.Operation,
	decode func(*Request) (In, error),
) (*admission, In, error) {
	a, err := s.admit(w, r, op)
	if err != nil {
		var none In
		return nil, none, err
	}
	in, err := decode(&a.Request)
	return a, in, err
}
