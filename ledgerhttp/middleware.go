// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"context"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/wire"
)

// Middleware puts the ledger around an http.Handler of any router. The handler
// finds its transaction with Tx and writes its response as always; the response
// is held back until COMMIT.
//
// 2xx, 3xx and decided 4xx are stored with what was written. What the ledger
// never stores rolls back and is answered as it is: 401, 403, 408, 412, 425, 428,
// 429 and 5xx (rule L14). So does what says that the request should be corrected,
// so that it does not burn its key: 400, 404, 405, 406, 411, 413 to 417, 421, 426
// and 431.
//
// Wrap the handler of one endpoint, not a whole router: the handler may run more
// than once, when the database ends its transaction in favour of another one,
// and routers keep state in the request. Whatever turns an error into a response
// belongs inside, because a handler that returns without a word has answered
// 200. Compression belongs outside.
//
// The response can't be flushed, streamed or hijacked; http.ResponseController
// says so. 1xx responses are not sent. A response of up to Config.MaxResponse
// reaches its caller whole; a longer one is rolled back and answered 500. It is
// kept up to the ledger's MaxBody; beyond, the effect is on record and a repeat is
// told so (rule L8). A panic rolls back and goes on.
//
// The first answer has all header fields that were written, but for those of the
// connection. A repeat has the stored ones only (rule L5), so that a session or a
// quota is not handed out twice.
//
// Content that can't be compared, such as malformed JSON, is answered 400 before
// the handler. Middleware panics if the contract does not declare op, or
// declares it as staged.
func (s *Server[TTx]) Middleware(op reprise.Operation) func(http.Handler) http.Handler {
	o := s.declared("Middleware", op, contract.Atomic, contract.ModeNone)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.record(w, r, o, next)
		})
	}
}

func (s *Server[TTx]) record(w http.ResponseWriter, r *http.Request, op contract.Operation, next http.Handler) {
	a, err := s.admit(w, r, op)
	if err != nil {
		s.fail(w, r, op, err)
		return
	}
	ctx := a.Context()
	misuse := func(what string) {
		s.config.Logger.WarnContext(ctx, "ledgerhttp: "+what, "operation", string(op.Name))
	}
	var last *recorder // of the run whose transaction counts
	panicked, outcome := true, reprise.Unknown
	defer func() {
		// Frameworks that recover a panic write their 500 to the response that they
		// gave the handler, which is the recorder. Without an answer of ours the
		// caller would read 200. It is not sent when net/http aborts the connection.
		if panicked {
			wire.ProblemOf(&reprise.Error{Code: reprise.CodeInternal, Outcome: outcome}).Write(w)
		}
	}()
	answer, err := execute(s.ledger, a, func(ctx context.Context, tx TTx) (reprise.Result, error) {
		outcome = reprise.NotProcessed // What a panic of the handler proves, by its rollback.
		last = newRecorder(w.Header(), s.config.MaxResponse, misuse)
		last.run(next, a.readable(context.WithValue(ctx, txKey{}, tx)))
		outcome = reprise.Unknown
		if last.excess != nil {
			return reprise.Result{}, last.excess
		}
		result := last.result()
		if !keeps(result.Status) {
			return result, ledger.Refuse(result)
		}
		return result, nil
	})
	panicked = false
	if err != nil {
		s.fail(w, r, op, err)
		return
	}
	if !answer.Replayed {
		// The first answer also has the fields that are not stored (rule L5).
		last.replace(w.Header())
	}
	writeAnswer(w, answer)
}

// keeps says whether a handler's status may be a decision. The ledger itself
// leaves out those that speak of this attempt or this moment (rule L14). These
// here say that the request as it came is none that the handler takes: it may be
// corrected under the same key.
func keeps(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusLengthRequired, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong,
		http.StatusUnsupportedMediaType, http.StatusRequestedRangeNotSatisfiable, http.StatusExpectationFailed,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusRequestHeaderFieldsTooLarge:
		return false
	}
	return true
}
