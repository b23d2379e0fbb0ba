// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/reprise-go/reprise"
)

// ETag returns the strong entity tag of a version (RFC 9110 section 8.8.3).
// Different versions have different tags: bytes that cannot stand in a tag, and
// '%', are percent-encoded.
func ETag(version string) string {
	var b strings.Builder
	b.Grow(len(version) + 2)
	b.WriteByte('"')
	for i := range len(version) {
		if c := version[i]; etagChar(c) && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// IfMatch evaluates the If-Match field of a request against the entity tag of
// the current representation, by strong comparison (RFC 9110 section 13.1.1 and
// 8.8.3.2; rule W6). An empty current means that there is no representation.
//
// present is false when the request has no such field. match is true for "*"
// when there is a representation, and for a list with a strong tag equal to
// current; a weak tag, on either side, never matches. A field that is neither is
// an error with CodeInvalid.
func IfMatch(h http.Header, current string) (present, match bool, err error) {
	lines := h["If-Match"]
	if len(lines) == 0 {
		return false, false, nil
	}
	// Several lines are one list (RFC 9110 section 5.3).
	rest := strings.Trim(strings.Join(lines, ","), " \t")
	if rest == "*" {
		return true, current != "", nil
	}
	tags := 0
	for rest != "" {
		if rest[0] == ',' { // Empty list elements are ignored (RFC 9110 section 5.6.1.2).
			rest = strings.TrimLeft(rest[1:], " \t")
			continue
		}
		tag, after, ok := cutTag(rest)
		if !ok {
			return true, false, invalidIfMatch()
		}
		tags++
		match = match || tag == current && tag[0] == '"'
		rest = strings.TrimLeft(after, " \t")
		if rest != "" && rest[0] != ',' {
			return true, false, invalidIfMatch()
		}
	}
	if tags == 0 {
		return true, false, invalidIfMatch()
	}
	return true, match, nil
}

// cutTag cuts an entity tag, with its W/ if it is weak, from the front of s.
func cutTag(s string) (tag, after string, ok bool) {
	body := strings.TrimPrefix(s, "W/")
	if body == "" || body[0] != '"' {
		return "", s, false
	}
	for i := 1; i < len(body); i++ {
		if body[i] == '"' {
			n := len(s) - len(body) + i + 1
			return s[:n], s[n:], true
		}
		if !etagChar(body[i]) {
			break
		}
	}
	return "", s, false
}

// etagChar is etagc of RFC 9110 section 8.8.3.
func etagChar(c byte) bool { return c == 0x21 || c >= 0x23 && c != 0x7f }

func invalidIfMatch() error {
	return &reprise.Error{
		Code: reprise.CodeInvalid, Outcome: reprise.NotProcessed,
		Detail: `the If-Match field is not "*" nor a list of entity tags; send the ETag of the version you read, with its quotes`,
	}
}
