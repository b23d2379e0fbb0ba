// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"slices"
	"strings"
)

// path writes the concrete path (rule F2), normalised so far as every server
// agrees (RFC 3986 section 6.2.2): an escaped unreserved character is the
// character itself, a character that may not stand in a URI is escaped, and
// escapes are in upper case. "/a%2Fb" and "/a/b" stay different, and nothing is
// done to dots and slashes.
func (e *encoder) path(p string) error {
	if p == "" {
		p = "/"
	}
	const upper = "0123456789ABCDEF"
	start := e.open()
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '%':
			var ok bool
			if c, ok = unescape(p[i:]); !ok {
				return invalid("the path has an invalid percent-escape at byte %d", i+1)
			}
			i += 2
		case isReserved(c):
			e.buf = append(e.buf, c)
			continue
		}
		if isUnreserved(c) {
			e.buf = append(e.buf, c)
		} else {
			e.buf = append(e.buf, '%', upper[c>>4], upper[c&15])
		}
	}
	e.close(start)
	return nil
}

// pair is one name and value of a query or a form.
type pair struct{ name, value string }

// pairs writes the pairs of a query (rule F2) or of a form (rule F4): decoded,
// sorted by name, and in their own order where the names are equal. As in every
// reader of forms, "a" and "a=" are the same pair and empty parts are none.
func (e *encoder) pairs(q string) error {
	var pairs []pair
	for part := range strings.SplitSeq(q, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, ok1 := unescapeForm(name)
		value, ok2 := unescapeForm(value)
		if !ok1 || !ok2 {
			return invalid("the query or form has an invalid percent-escape in its pair %d", len(pairs)+1)
		}
		pairs = append(pairs, pair{name, value})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.name, b.name) })
	e.number(len(pairs))
	for _, p := range pairs {
		e.text(p.name)
		e.text(p.value)
	}
	return nil
}

// unescapeForm decodes '+' and percent-escapes of
// application/x-www-form-urlencoded.
func unescapeForm(s string) (string, bool) {
	if !strings.ContainsAny(s, "%+") {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			var ok bool
			if c, ok = unescape(s[i:]); !ok {
				return "", false
			}
			i += 2
		}
		b = append(b, c)
	}
	return string(b), true
}

// unescape decodes the percent-escape at the front of s.
func unescape(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	hi, ok1 := hexDigit(s[1])
	lo, ok2 := hexDigit(s[2])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// isUnreserved and isReserved are the sets of RFC 3986 section 2.2 and 2.3.
func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

func isReserved(c byte) bool { return strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 }
