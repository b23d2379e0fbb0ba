// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/reprise-go/reprise"
)

// ContentTypeProblem is the media type of a problem document.
const ContentTypeProblem = "application/problem+json"

// problemType is what the type of a problem begins with; its code follows.
const problemType = "urn:reprise:problem:"

// The values of Problem.Retry (rule W1). An empty one gives no advice.
const (
	// RetryFix: the request was refused before anything was remembered of it.
	// Correct it and send it again; the same key may be used.
	RetryFix = "fix"
	// RetryNewKey: the key is spent, on another request or on a decision. What
	// comes next is a new intent and takes a new key.
	RetryNewKey = "new-key"
	// RetrySameKey: send the same request again under the same key, not before
	// Retry-After. Without a key: only if Outcome is NotProcessed, or if the
	// operation is safe or idempotent.
	RetrySameKey = "same-key"
	// RetryReconcile: no retry can find out. Ask for the resource itself.
	RetryReconcile = "reconcile"
)

// Problem is a problem document (RFC 9457; rules W1 and W2). The zero value of
// each field means that the document doesn't say.
type Problem struct {
	// Type is "urn:reprise:problem:" and the code.
	Type string
	// Title is the same for each problem of one type.
	Title string
	// Status is the HTTP status.
	Status int
	// Detail is a sentence about this occurrence, for people.
	Detail string
	// Code is what programs act on. Codes are append-only; a code that the
	// reader does not know means what the status means.
	Code reprise.Code
	// Retry is what to do next: RetryFix, RetryNewKey, RetrySameKey,
	// RetryReconcile or nothing.
	Retry string
	// Outcome is what the server knows of the effect of this attempt. It says
	// nothing about earlier attempts under the same key.
	Outcome reprise.Outcome
	// Reference names the result that an expired key once had.
	Reference string
	// RetryAfter is how long to wait before trying again; 0 means no advice. It
	// is a header field, in whole seconds, and no member of the document.
	RetryAfter time.Duration
}

// row is what rule W2 says of one code.
type row struct {
	status  int
	retry   string
	outcome reprise.Outcome
	wait    time.Duration
	title   string
}

// table is rule W2. outcome is what the code alone proves, and is used when the
// error does not know better.
var table = map[reprise.Code]row{
	reprise.CodeKeyMissing: {
		400, RetryFix, reprise.NotProcessed, 0, "The idempotency key is missing"},
	reprise.CodeKeyInvalid: {
		400, RetryFix, reprise.NotProcessed, 0, "The idempotency key is not valid"},
	reprise.CodeKeyReused: {
		422, RetryNewKey, reprise.NotProcessed, 0, "The idempotency key was used for another request"},
	reprise.CodeKeyExpired: {
		410, RetryReconcile, reprise.Unknown, 0, "The idempotency key is too old for its result to be known"},
	reprise.CodeInProgress: {
		409, RetrySameKey, reprise.Unknown, time.Second, "Another attempt at the same request is in progress"},
	reprise.CodeOutcomeUnknown: {
		503, RetrySameKey, reprise.Unknown, time.Second, "It is not known whether the request took effect"},
	reprise.CodeStoreUnavailable: {
		503, RetrySameKey, reprise.NotProcessed, time.Second, "The service cannot remember requests at the moment"},
	reprise.CodeLeaseLost: {
		503, RetrySameKey, reprise.Unknown, time.Second, "Another worker has taken the request over"},
	reprise.CodePreconditionRequired: {
		428, RetryFix, reprise.NotProcessed, 0, "The request must say which version it changes"},
	reprise.CodePreconditionFailed: {
		412, RetryFix, reprise.Rejected, 0, "The resource has another version"},
	reprise.CodeInvalid: {
		400, RetryFix, reprise.NotProcessed, 0, "The request is not valid"},
	reprise.CodeUnauthenticated: {
		401, RetryFix, reprise.NotProcessed, 0, "The request is not authenticated"},
	reprise.CodeTooLarge: {
		413, RetryFix, reprise.NotProcessed, 0, "The request is too large"},
	reprise.CodeInternal: {
		500, RetrySameKey, reprise.Unknown, 0, "The service failed"},
}

// ProblemOf turns an error into the document that a caller may see.
//
// An *reprise.Error in err's chain gives code, detail, outcome, reference and
// wait; status, advice and title follow from the code (rule W2), and the status
// of a code of the application's own from Error.Status. Every other error is a
// 500 with CodeInternal, of which nothing but that is told: the text of an error
// may hold stored data.
func ProblemOf(err error) Problem {
	e, ok := errors.AsType[*reprise.Error](err)
	if !ok {
		e = &reprise.Error{Code: reprise.CodeInternal}
	}
	r, known := table[e.Code]
	if !known {
		r = applicationRow(e)
	}
	if isError(e.Status) {
		r.status = e.Status
	}
	p := Problem{
		Type: problemType + string(e.Code), Title: r.title, Status: r.status, Detail: e.Detail,
		Code: e.Code, Retry: r.retry, Outcome: r.outcome, Reference: e.Reference, RetryAfter: r.wait,
	}
	if e.Outcome != reprise.Unknown {
		p.Outcome = e.Outcome
	}
	if e.RetryAfter > 0 {
		p.RetryAfter = e.RetryAfter
	}
	return p
}

// applicationRow is for codes that are not ours: what to do next follows from
// the status and from what is known of the effect.
func applicationRow(e *reprise.Error) row {
	r := row{status: e.Status, outcome: e.Outcome}
	if !isError(r.status) {
		r.status = http.StatusInternalServerError
	}
	r.title = http.StatusText(r.status)
	switch {
	case e.Outcome == reprise.Rejected:
		r.retry = RetryNewKey
	case transient(r.status):
		r.retry = RetrySameKey
	default:
		r.retry = RetryFix
	}
	return r
}

func isError(status int) bool { return status >= 400 && status <= 599 }

// transient reports whether a status speaks of the moment rather than of the
// request.
func transient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// Decision is the problem of an answer that is a result: the service decided
// against the request, and the same key gives the same answer again (rule L14).
// status is 400 to 499.
func Decision(status int, code reprise.Code, detail string) Problem {
	return Problem{
		Type: problemType + string(code), Title: http.StatusText(status), Status: status, Detail: detail,
		Code: code, Retry: RetryNewKey, Outcome: reprise.Rejected,
	}
}

// document is the JSON form, in the order in which members are written.
type document struct {
	Type      string          `json:"type"`
	Title     string          `json:"title"`
	Status    int             `json:"status"`
	Detail    string          `json:"detail,omitzero"`
	Code      reprise.Code    `json:"code"`
	Retry     string          `json:"retry,omitzero"`
	Outcome   reprise.Outcome `json:"outcome"`
	Reference string          `json:"reference,omitzero"`
}

// MarshalJSON implements json.Marshaler. Bytes that are not UTF-8 are replaced.
func (p Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(document{
		p.Type, p.Title, p.Status, p.Detail, p.Code, p.Retry, p.Outcome, p.Reference,
	}, jsontext.AllowInvalidUTF8(true))
}

// Write sends p as the response. It replaces the header fields that speak of
// another body, and sets Retry-After in whole seconds, rounded up, and
// Cache-Control: no-store. A 401 without a challenge gets "Bearer". When the
// server has proven that it did not act, and the request may simply be sent
// again, Retry-Context says processed=?0 (rule W4).
func (p Problem) Write(w http.ResponseWriter) {
	body, err := p.MarshalJSON()
	if err != nil { // A document of strings and numbers always marshals.
		panic("wire: marshal problem: " + err.Error())
	}
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", HeaderReplayed, HeaderExpires} {
		h.Del(name)
	}
	h.Set("Content-Type", ContentTypeProblem)
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(ceilSeconds(p.RetryAfter)/time.Second), 10))
	}
	if p.Status == http.StatusUnauthorized && len(h["Www-Authenticate"]) == 0 {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if p.Outcome == reprise.NotProcessed && p.Retry == RetrySameKey {
		RetryContext{Processed: new(bool)}.Set(h)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // The client has gone; there is nobody to tell.
}

// ReadProblem reads the problem document of a response, of which body is the
// content. ok is false when the response is no problem document.
//
// The status is the response's own, whatever the document says. As RFC 9457
// section 3.1 demands, members of the wrong type and unknown members are
// ignored. An outcome that is missing or not known is Unknown, and a missing
// code is taken from the type.
func ReadProblem(resp *http.Response, body []byte) (p Problem, ok bool) {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || mediaType != ContentTypeProblem {
		return Problem{}, false
	}
	var members map[string]jsontext.Value
	if json.Unmarshal(body, &members) != nil || members == nil {
		return Problem{}, false
	}
	text := func(name string) string {
		var s string
		if json.Unmarshal(members[name], &s) != nil {
			return ""
		}
		return s
	}
	p = Problem{
		Type: text("type"), Title: text("title"), Status: resp.StatusCode, Detail: text("detail"),
		Code: reprise.Code(text("code")), Retry: text("retry"), Reference: text("reference"),
	}
	if p.Type == "" {
		p.Type = "about:blank"
	}
	if code, ours := strings.CutPrefix(p.Type, problemType); ours && p.Code == "" {
		p.Code = reprise.Code(code)
	}
	_ = p.Outcome.UnmarshalText([]byte(text("outcome"))) // Leaves Unknown behind.
	p.RetryAfter, _ = RetryAfter(resp.Header, time.Now())
	return p, true
}
