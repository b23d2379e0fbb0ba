// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"iter"
	"strings"
)

// headWords is how many words of a statement tell what it is.
const headWords = 4

// heads yields the first words of every statement in a query, upper-cased. It
// reads tokens as PostgreSQL's own scanner does (scan.l), because what one of the
// two takes for a string and the other for SQL is a way past the guard. escapes
// says whether a backslash escapes in every string, as it does when
// standard_conforming_strings is off.
func heads(query string, escapes bool) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		head := make([]string, 0, headWords)
		for query != "" {
			n, kind := token(query, escapes)
			switch {
			case kind == blank:
			case query[0] == ';':
				if len(head) > 0 && !yield(head) {
					return
				}
				head = make([]string, 0, headWords)
			case len(head) < headWords:
				head = append(head, strings.ToUpper(query[:n]))
			}
			query = query[n:]
		}
		if len(head) > 0 {
			yield(head)
		}
	}
}

type kind int

const (
	blank kind = iota // space or a comment
	solid
)

// token returns the length of the token that query begins with.
func token(query string, escapes bool) (n int, k kind) {
	switch c := query[0]; {
	case isSpace(c):
		return 1, blank
	case strings.HasPrefix(query, "--"):
		if i := strings.IndexAny(query, "\r\n"); i >= 0 {
			return i, blank
		}
		return len(query), blank
	case strings.HasPrefix(query, "/*"):
		return comment(query), blank
	case c == '\'':
		return quoted(query, 0, escapes), solid
	case c == '"':
		return quoted(query, 0, false), solid
	case (c == 'e' || c == 'E') && strings.HasPrefix(query[1:], "'"):
		return quoted(query, 1, true), solid
	case c == '$':
		return dollar(query), solid
	case isLetter(c):
		n := 1
		for n < len(query) && (isLetter(query[n]) || isDigit(query[n]) || query[n] == '$') {
			n++
		}
		return n, solid
	}
	return 1, solid
}

// comment returns the end of a comment, which may hold others.
func comment(query string) int {
	depth := 0
	for i := 0; i < len(query)-1; i++ {
		switch query[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(query)
}

// quoted returns the end of a string whose quote is at start, and is written
// twice inside it.
func quoted(query string, start int, escapes bool) int {
	quote := query[start]
	for i := start + 1; i < len(query); i++ {
		switch {
		case query[i] == '\\' && escapes:
			i++
		case query[i] != quote:
		case i+1 < len(query) && query[i+1] == quote:
			i++
		default:
			return i + 1
		}
	}
	return len(query)
}

// dollar returns the end of a string between two equal $tag$, or of the dollar
// alone if it begins none.
func dollar(query string) int {
	n := 1
	for n < len(query) && (isLetter(query[n]) || n > 1 && isDigit(query[n])) {
		n++
	}
	if n == len(query) || query[n] != '$' {
		return 1
	}
	tag := query[:n+1]
	if i := strings.Index(query[n+1:], tag); i >= 0 {
		return n + 1 + i + len(tag)
	}
	return len(query)
}

// isSpace is the scanner's: \v is one since PostgreSQL 16 only, and nothing begins
// with it before.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80 }
