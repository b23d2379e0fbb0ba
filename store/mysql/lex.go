// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"iter"
	"strings"
)

// statements yields the first word of every statement in a text, upper-cased,
// and every comment whose content the server runs. escapes says that a backslash
// in a string hides the character behind it. It reads tokens as the servers'
// own lexer does (sql_lex.cc), because what one of the two takes for a string
// and the other for SQL is a way past the guard.
func statements(text string, escapes bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		first := true
		for t := range tokens(text, escapes) {
			switch {
			case t == ";":
				first = true
			case isHidden(t), first:
				if !yield(strings.ToUpper(t)) {
					return
				}
				first = false
			}
		}
	}
}

// split cuts a script into its statements.
func split(script string) (all []string) {
	begin, end := 0, 0
	for t, at := range positions(script, true) {
		if t == ";" {
			all = append(all, strings.TrimSpace(script[begin:at]))
			begin = at + 1
		}
		end = at + len(t)
	}
	if last := strings.TrimSpace(script[begin:max(begin, end)]); last != "" {
		all = append(all, last)
	}
	return all
}

// isHidden reports whether a token is the begin of a comment that is SQL to the
// server.
func isHidden(token string) bool { return token == "/*!" || token == "/*M!" }

// tokens yields words, quoted things as one token with their quotes, and every
// other character by itself.
func tokens(text string, escapes bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for t := range positions(text, escapes) {
			if !yield(t) {
				return
			}
		}
	}
}

// positions yields tokens and where they begin.
func positions(text string, escapes bool) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for at := 0; at < len(text); {
			n, skip := token(text[at:], escapes)
			if !skip && !yield(text[at:at+n], at) {
				return
			}
			at += n
		}
	}
}

// token returns the length of the token that text begins with, and whether it is
// only space or a comment.
func token(text string, escapes bool) (n int, skip bool) {
	switch c := text[0]; {
	case c <= ' ':
		return 1, true
	case strings.HasPrefix(text, "/*!"):
		return len("/*!"), false
	case strings.HasPrefix(text, "/*M!"):
		return len("/*M!"), false
	case strings.HasPrefix(text, "/*"):
		return through(text, 2, "*/"), true
	case c == '#', strings.HasPrefix(text, "--") && (len(text) == 2 || text[2] <= ' '):
		return through(text, 1, "\n"), true
	case c == '\'' || c == '"':
		return quoted(text, c, escapes), false
	case c == '`':
		return quoted(text, c, false), false
	case isWord(c):
		n := 1
		for n < len(text) && isWord(text[n]) {
			n++
		}
		return n, false
	}
	return 1, false
}

// through returns the end of the first stop at or after from, or the whole.
func through(text string, from int, stop string) int {
	if i := strings.Index(text[from:], stop); i >= 0 {
		return from + i + len(stop)
	}
	return len(text)
}

// quoted returns the end of a string in which the quote is written twice.
func quoted(text string, quote byte, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] != quote:
		case i+1 == len(text) || text[i+1] != quote:
			return i + 1
		default:
			i++
		}
	}
	return len(text)
}

// isWord reports whether c is part of a word: letters, digits, '_', '$' and every
// byte over 127.
func isWord(c byte) bool {
	return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}
