// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The literals below go into texts that are sent by the simple protocol. All are
// plain ASCII, so the encoding of the client does not matter, and none depends on
// standard_conforming_strings: a backslash stands in E'...' only, where it is
// always doubled or begins an escape of ours.

// quoteText writes a text. Every byte that is not printable ASCII, and the two
// that end or escape, becomes a hexadecimal escape, which is a byte of the
// server's encoding: UTF8, as New makes sure.
func quoteText(s string) []byte {
	b := append(make([]byte, 0, len(s)+3), "E'"...)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			b = append(b, '\\', 'x', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		} else {
			b = append(b, c)
		}
	}
	return append(b, '\'')
}

// quoteBytes writes a bytea; nil is NULL.
func quoteBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, "NULL"...)
	}
	b = append(b, `E'\\x`...)
	b = hex.AppendEncode(b, v)
	return append(b, "'::bytea"...)
}

func quoteUUID(b []byte, id [16]byte) []byte {
	b = append(b, '\'')
	b = hex.AppendEncode(b, id[:])
	return append(b, "'::uuid"...)
}

// quoteTime writes a time of the years 1 to 9999, in microseconds.
func quoteTime(b []byte, t time.Time) []byte {
	b = append(b, '\'')
	b = t.UTC().AppendFormat(b, "2006-01-02 15:04:05.000000")
	return append(b, "+00'::timestamptz"...)
}

// quoteInt writes an integer. The parentheses keep a minus sign from what stands
// before it: two of them begin a comment.
func quoteInt(b []byte, n int64) []byte {
	b = append(b, '(')
	b = strconv.AppendInt(b, n, 10)
	return append(b, ')')
}

// checkText says whether a text can be stored: PostgreSQL's has no NUL and is
// valid UTF-8.
func checkText(what, s string) error {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		return fmt.Errorf("postgres: %s %.100q holds NUL or is not UTF-8, and can't be stored", what, s)
	}
	return nil
}

// inline writes values that are literals already in the place of $1 to $9.
func inline(sql string, literals ...[]byte) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(sql, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.Write(literals[rest[0]-'1'])
		sql = rest[1:]
	}
}
