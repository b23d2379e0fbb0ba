// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/wire"
)

// Request is what a decoder reads: the HTTP request, read to its end.
type Request struct {
	// Request is the request as it came. Its Body reads Request.Body from the
	// start, so that ParseForm and the like work.
	*http.Request
	// Caller is who asks, as Config.Callers established.
	Caller reprise.Caller
	// Key names the intent. It is empty when the operation takes no key, or none
	// was sent. Whether a key was required is checked after the decoder.
	Key reprise.Key
	// Body is the whole body.
	Body []byte
}

// admission is one request on its way to the ledger.
type admission struct {
	Request
	op          contract.Operation
	fingerprint reprise.Fingerprint
	// doubt is what is wrong with the key, or with the content as a thing to
	// recognise. It is held back until the decoder has had its say.
	doubt error
	// matched is where CheckIfMatch notes a match; nil if the operation demands
	// none.
	matched *atomic.Bool
}

// admit does what comes before validation: it establishes the caller, reads the
// body, and fixes the identity of the request before any code of the
// application can change a byte of it.
func (s *Server[TTx]) admit(w http.ResponseWriter, r *http.Request, op contract.Operation) (*admission, error) {
	caller, err := s.config.Callers(r)
	if err == nil && caller == "" {
		err = errors.New("ledgerhttp: Config.Callers returned no caller")
	}
	if err != nil {
		return nil, unauthenticated(err)
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, err
	}
	a := &admission{Request: Request{Request: r, Caller: caller, Body: body}, op: op}
	ctx := r.Context()
	if op.Precondition == contract.IfMatch {
		a.matched = new(atomic.Bool)
		ctx = context.WithValue(ctx, matchKey{}, a.matched)
	}
	a.Request.Request = a.readable(ctx)
	a.identify(s.config.FingerprintSecret)
	return a, nil
}

func unauthenticated(err error) error {
	if _, ok := errors.AsType[*reprise.Error](err); ok {
		return err
	}
	return &reprise.Error{
		Code: reprise.CodeUnauthenticated, Outcome: reprise.NotProcessed,
		Detail: "the request has no credentials, or none that are valid", Err: err,
	}
}

// maxAhead bounds the memory that is set aside for a body before it arrives.
const maxAhead = 64 << 10

func tooLarge(limit int64) error {
	return &reprise.Error{
		Code: reprise.CodeTooLarge, Outcome: reprise.NotProcessed,
		Detail: fmt.Sprintf("the body is over the limit of %d bytes", limit),
	}
}

// readBody reads the body to its end, so that nothing is claimed for a request
// that has not arrived.
func (s *Server[TTx]) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.config.MaxRequestBody
	if r.ContentLength > limit {
		// Without a read there is no "100 Continue": the client need not send it.
		return nil, tooLarge(limit)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	var b bytes.Buffer
	if r.ContentLength > 0 {
		// What is announced has not come yet, and costs its sender nothing.
		b.Grow(int(min(r.ContentLength, maxAhead)) + bytes.MinRead)
	}
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%w: %w", Refuse(http.StatusRequestTimeout, "request-timeout",
			"the body did not arrive in time"), err)
	case err != nil:
		// Whoever hung up does not hear this, and a server in between must not
		// take silence for a 200.
		return nil, &reprise.Error{
			Code: reprise.CodeInvalid, Outcome: reprise.NotProcessed,
			Detail: "the body ended before it was complete", Err: err,
		}
	}
	return b.Bytes(), nil
}

// readable returns a copy of the request, with its own context and a body that
// reads from the start.
func (a *admission) readable(ctx context.Context) *http.Request {
	r := a.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(a.Body))
	r.ContentLength = int64(len(a.Body))
	r.TransferEncoding = nil
	return r
}

func (a *admission) identify(secret []byte) {
	if a.op.Key == contract.KeyNone {
		return
	}
	a.Key, a.doubt = wire.ReadKey(a.Header)
	if a.doubt != nil {
		if a.op.Key == contract.KeyOptional && reprise.CodeOf(a.doubt) == reprise.CodeKeyMissing {
			a.doubt = nil
		}
		return
	}
	a.fingerprint, a.doubt = wire.Shape{
		Method:      a.Method,
		Operation:   a.op.Name,
		Path:        a.URL.EscapedPath(),
		RawQuery:    a.URL.RawQuery,
		ContentType: a.Header.Get("Content-Type"),
		Header:      a.Header,
		HeaderNames: a.op.FingerprintHeaders,
		Body:        a.Body,
		Volatile:    a.op.Volatile,
		Secret:      secret,
	}.Fingerprint()
}

func (a *admission) intent() reprise.Intent {
	return reprise.Intent{Caller: a.Caller, Operation: a.op.Name, Key: a.Key, Fingerprint: a.fingerprint}
}

func (a *admission) options() ledger.Options {
	return ledger.Options{
		Retention: a.op.Retention, Tombstone: a.op.Tombstone, Wait: a.op.Wait,
		Number: wire.ReadRetryContext(a.Header).Attempt,
	}
}

// tooEarly says whether the request came in TLS early data, which an attacker
// can send a second time (RFC 8470), while nothing would recognise the second
// one. Any value means 1 (section 5.1).
func (a *admission) tooEarly() bool {
	return len(a.Header.Values("Early-Data")) > 0 && a.Key == "" &&
		a.op.Safety != contract.Safe && a.op.Safety != contract.Idempotent
}

// check reports what keeps a valid request from the ledger.
func (a *admission) check() error {
	if a.doubt != nil {
		return a.doubt
	}
	if a.tooEarly() {
		return Refuse(http.StatusTooEarly, "too-early",
			"the request came in early data and has no key; send it again after the handshake")
	}
	return nil
}

// execute runs work under the key of the request, or once without one.
func execute[TTx any](l *ledger.Ledger[TTx], a *admission, work ledger.Work[TTx]) (ledger.Answer, error) {
	if err := a.check(); err != nil {
		return ledger.Answer{}, err
	}
	work = conditional(a, work)
	if a.Key == "" {
		res, err := l.Once(a.Context(), work)
		return ledger.Answer{Result: res}, err
	}
	return l.Do(a.Context(), a.intent(), a.options(), work)
}
