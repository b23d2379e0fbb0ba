// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise"
)

// Shape is what a fingerprint is taken of: everything in a request that says
// what is asked for, and nothing that changes from attempt to attempt.
type Shape struct {
	// Method of the request, as it was sent.
	Method string
	// Operation that the request addresses.
	Operation reprise.Operation
	// Path is the concrete path in its escaped form, http.Request's
	// URL.EscapedPath().
	Path string
	// RawQuery is the query without its '?', http.Request's URL.RawQuery.
	RawQuery string
	// ContentType is the Content-Type field.
	ContentType string
	// Header is the header of the request. Only the fields in HeaderNames and
	// Content-Encoding are looked at.
	Header http.Header
	// HeaderNames are the fields that belong to what was asked, such as an API
	// version, in any case and order. Fields that differ between attempts are left
	// out also if they are named: If-Match, If-None-Match (rule F6),
	// Idempotency-Key and Retry-Context.
	HeaderNames []string
	// Body is the content. It is read and not kept.
	Body []byte
	// Volatile are the names of top-level JSON members that do not belong to what
	// was asked.
	Volatile []string
	// Secret, if not empty, keys the digest by HMAC-SHA256, so that a stolen
	// ledger does not let anybody test guesses of a body. It must never change
	// while keys are remembered: under another secret every repeat is a mismatch.
	Secret []byte
}

// neverFingerprinted are fields that belong to an attempt and not to an intent.
var neverFingerprinted = []string{"if-match", "if-none-match", "idempotency-key", "retry-context"}

// Fingerprint returns the fingerprint of s under version 1 (rules F1 to F7):
// SHA-256, or HMAC-SHA256, over the fields of s in an encoding in which no two
// different lists of fields are the same bytes.
//
// The error is an *reprise.Error with CodeInvalid when two readers could
// understand the request differently: malformed JSON, a JSON object with a
// member given twice, a malformed form, an invalid escape in path or query.
func (s Shape) Fingerprint() (reprise.Fingerprint, error) {
	e := encoders.Get().(*encoder)
	defer e.release()
	if err := e.shape(&s); err != nil {
		return reprise.Fingerprint{}, err
	}
	f := reprise.Fingerprint{reprise.FingerprintVersion}
	if len(s.Secret) == 0 && len(e.tail) == 0 { // The usual case allocates nothing.
		sum := sha256.Sum256(e.buf)
		copy(f[1:], sum[:])
		return f, nil
	}
	h := sha256.New()
	if len(s.Secret) > 0 {
		h = hmac.New(sha256.New, s.Secret)
	}
	h.Write(e.buf)
	h.Write(e.tail)
	copy(f[1:], h.Sum(nil))
	return f, nil
}

// encoder builds the bytes that are hashed (rule F7): a number is eight bytes in
// big-endian order, and a text is its length as a number, then its bytes.
type encoder struct {
	buf []byte
	// tail follows buf. It is a body that is hashed as it stands, and not copied.
	tail []byte
	json canonicalizer
}

// encoders keeps encoders for reuse, because a fingerprint is taken of every
// keyed request. Those that have grown large are dropped.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

const maxKept = 64 << 10

func (e *encoder) release() {
	if cap(e.buf) > maxKept || e.json.size() > maxKept {
		return
	}
	// Nothing of a request must outlive it by way of the pool.
	clear(e.buf[:cap(e.buf)])
	e.buf, e.tail = e.buf[:0], nil
	encoders.Put(e)
}

func (e *encoder) number(n int) {
	e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(n))
}

func (e *encoder) text(s string) {
	e.number(len(s))
	e.buf = append(e.buf, s...)
}

func (e *encoder) bytes(b []byte) {
	e.number(len(b))
	e.buf = append(e.buf, b...)
}

// open begins a text whose length is not known yet, and close ends it.
func (e *encoder) open() (start int) {
	e.number(0)
	return len(e.buf)
}

func (e *encoder) close(start int) {
	binary.BigEndian.PutUint64(e.buf[start-8:], uint64(len(e.buf)-start))
}

// shape writes all fields in the order that spec/PROTOCOL.md gives.
func (e *encoder) shape(s *Shape) error {
	e.text("reprise fingerprint 1")
	e.text(s.Method)
	e.text(string(s.Operation))
	if err := e.path(s.Path); err != nil {
		return err
	}
	if err := e.pairs(s.RawQuery); err != nil {
		return err
	}
	e.header(s.Header, s.HeaderNames)
	return e.body(s)
}

// header writes the chosen fields, sorted by their names in lower case, each
// with the number of its lines and every line by itself.
func (e *encoder) header(h http.Header, names []string) {
	var chosen []string
	for _, name := range names {
		if name = strings.ToLower(name); !slices.Contains(neverFingerprinted, name) {
			chosen = append(chosen, name)
		}
	}
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	e.number(len(chosen))
	for _, name := range chosen {
		lines := h[http.CanonicalHeaderKey(name)]
		e.text(name)
		e.number(len(lines))
		for _, line := range lines {
			e.text(strings.Trim(line, " \t"))
		}
	}
}

func invalid(format string, args ...any) error {
	return &reprise.Error{
		Code: reprise.CodeInvalid, Outcome: reprise.NotProcessed,
		Detail: fmt.Sprintf(format, args...),
	}
}
