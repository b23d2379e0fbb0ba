// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"iter"
	"strings"
)

// statements yields the first words of every statement in a query, upper-cased
// and without comments, at most eight of each: enough to see what it is. It
// reads tokens as SQLite's own tokenizer does (tokenize.c), because what one of
// the two takes for a string and the other for SQL is a way past the guard.
func statements(query string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		var head []string
		var last string
		trigger := false
		for t := range tokens(query) {
			if t == ";" && (!trigger || last == "END;") {
				if len(head) > 0 && !yield(head) {
					return
				}
				head, last, trigger = nil, "", false
				continue
			}
			if len(head) < 8 {
				head = append(head, t)
				trigger = trigger || isTrigger(head)
			}
			// The body of a trigger is a list of statements, each with its semicolon,
			// and ends in an END that follows a semicolon.
			if trigger && last == ";" && t == "END" {
				last = "END;"
			} else {
				last = t
			}
		}
		if len(head) > 0 {
			yield(head)
		}
	}
}

func isTrigger(head []string) bool {
	switch len(head) {
	case 2:
		return head[0] == "CREATE" && head[1] == "TRIGGER"
	case 3:
		return head[0] == "CREATE" && (head[1] == "TEMP" || head[1] == "TEMPORARY") && head[2] == "TRIGGER"
	}
	return false
}

// tokens yields words upper-cased, quoted things as one token with their
// quotes, and every other character by itself.
func tokens(query string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for query != "" {
			n, skip := token(query)
			if !skip && !yield(strings.ToUpper(query[:n])) {
				return
			}
			query = query[n:]
		}
	}
}

// token returns the length of the token that query begins with, and whether it
// is only space or a comment.
func token(query string) (n int, skip bool) {
	switch c := query[0]; {
	case isSpace(c):
		return 1, true
	case strings.HasPrefix(query, "\ufeff"):
		return len("\ufeff"), true
	case strings.HasPrefix(query, "--"):
		return through(query, 2, "\n"), true
	case strings.HasPrefix(query, "/*") && len(query) > 2:
		return through(query, 2, "*/"), true
	case c == '\'' || c == '"' || c == '`':
		return quoted(query, c), false
	case c == '[':
		return through(query, 1, "]"), false
	case c == '$' || c == '@' || c == '#' || c == ':':
		return variable(query), false
	case isWord(c):
		n := 1
		for n < len(query) && isWord(query[n]) {
			n++
		}
		return n, false
	}
	return 1, false
}

// through returns the end of the first stop at or after from, or the whole.
func through(query string, from int, stop string) int {
	if i := strings.Index(query[from:], stop); i >= 0 {
		return from + i + len(stop)
	}
	return len(query)
}

// quoted returns the end of a string in which the quote is written twice.
func quoted(query string, quote byte) int {
	for i := 1; i < len(query); i++ {
		if query[i] != quote {
			continue
		}
		if i+1 == len(query) || query[i+1] != quote {
			return i + 1
		}
		i++
	}
	return len(query)
}

// variable returns the end of a parameter: a word, which may contain "::" and
// end in a parenthesis that holds no space, as Tcl would have it.
func variable(query string) int {
	words := 0
	for i := 1; i < len(query); i++ {
		switch c := query[i]; {
		case isWord(c):
			words++
		case c == '(' && words > 0:
			for i++; i < len(query); i++ {
				if query[i] == ')' {
					return i + 1
				}
				if isSpace(query[i]) {
					return i
				}
			}
			return len(query)
		case c == ':' && strings.HasPrefix(query[i:], "::"):
			i++
		default:
			return i
		}
	}
	return len(query)
}

func isSpace(c byte) bool {
	return c == ' ' || '\t' <= c && c <= '\r'
}

// isWord is SQLite's IdChar: letters, digits, '_', '$' and every byte over 127.
func isWord(c byte) bool {
	return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}
