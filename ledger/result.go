// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/reprise-go/reprise"
)

// storedHeaders are the fields that describe a result and mean the same on every
// repeat. Everything else belongs to one response, one connection or one client.
var storedHeaders = []string{
	"Content-Disposition",
	"Content-Encoding",
	"Content-Language",
	"Content-Location",
	"Content-Type",
	"Etag",
	"Last-Modified",
	"Link",
	"Location",
	"Vary",
}

// StoredHeaders returns the names of the response fields that belong to a
// result, in canonical form. A field that is neither here nor in Config.Headers
// is not in an Answer, the first one included, so that every Answer to one key is
// the same (rules L4 and L5).
func StoredHeaders() []string { return slices.Clone(storedHeaders) }

// neverStored are fields that must not be replayed, whoever asks for it: they
// would hand on a session, a credential's challenge, the framing of another
// connection, or a date or quota that was true once.
var neverStored = []string{
	"Age", "Authentication-Info", "Connection", "Content-Length", "Date", "Idempotency-Expires", "Idempotent-Replayed",
	"Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Connection", "Retry-After", "Retry-Context",
	"Set-Cookie", "Set-Cookie2", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate",
}

// checkHeaderName reports whether name may be added to the stored fields.
func checkHeaderName(name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
		return fmt.Errorf("ledger: Config.Headers has %q, which is not the name of a header field", name)
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	limits := strings.HasPrefix(canonical, "Ratelimit") || strings.HasPrefix(canonical, "X-Ratelimit")
	if limits || slices.Contains(neverStored, canonical) {
		return fmt.Errorf("ledger: Config.Headers has %q, which must not be replayed: it belongs to one response only", name)
	}
	return nil
}

// headerNames returns the allow-list with the extra names in it.
func headerNames(extra []string) map[string]bool {
	names := make(map[string]bool, len(storedHeaders)+len(extra))
	for _, n := range slices.Concat(storedHeaders, extra) {
		names[textproto.CanonicalMIMEHeaderKey(n)] = true
	}
	return names
}

// freeze returns a copy of r that shares no memory with the handler's and holds
// the allowed fields only, or an error if r can't be answered at all.
func (l *Ledger[TTx]) freeze(r reprise.Result) (reprise.Result, error) {
	if r.Status < 200 || r.Status > 599 {
		return reprise.Result{}, fmt.Errorf("ledger: the handler returned status %d; a result has one of 200 to 599", r.Status)
	}
	kept := reprise.Result{Status: r.Status, Body: bytes.Clone(r.Body), Reference: r.Reference}
	// Sorted, so that two spellings of one name are joined in the same order on
	// every run.
	names := make([]string, 0, 8) // Usually enough, and then on the stack.
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if !l.headers[canonical] || len(r.Header[name]) == 0 {
			continue
		}
		for _, v := range r.Header[name] {
			if strings.ContainsAny(v, "\r\n\x00") {
				return reprise.Result{}, fmt.Errorf("ledger: the value of %s has a line break or a NUL in it", canonical)
			}
		}
		if kept.Header == nil {
			kept.Header = make(map[string][]string, len(names))
		}
		kept.Header[canonical] = append(kept.Header[canonical], r.Header[name]...)
	}
	return kept, nil
}

// storable reports whether a status is a final answer to its key (rule L14).
// 401, 403, 408, 412, 425, 428 and 429 say something of this attempt or this
// moment; with 5xx the server says that it failed.
func storable(status int) bool {
	switch status {
	case 401, 403, 408, 412, 425, 428, 429:
		return false
	}
	return status >= 200 && status <= 499
}

// copyResult returns a deep copy, so that callers who are given one result can't
// change each other's.
func copyResult(r reprise.Result) reprise.Result {
	r.Body = bytes.Clone(r.Body)
	if r.Header != nil {
		header := make(map[string][]string, len(r.Header))
		for name, values := range r.Header {
			header[name] = slices.Clone(values)
		}
		r.Header = header
	}
	return r
}
