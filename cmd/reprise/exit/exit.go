// SPDX-License-Identifier: Apache-2.0

// Package exit says how the program ends: with a code that scripts can act on,
// and with an error and a hint that people can.
package exit

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Code is the exit code of the program.
type Code int

const (
	// OK: everything asked for was done.
	OK Code = 0
	// Failure: a check found a violation, or the work failed.
	Failure Code = 1
	// Inconclusive: the check proved nothing, for example because a fault did
	// not fire.
	Inconclusive Code = 2
	// Usage: a flag, an argument or a configuration file can't be understood.
	Usage Code = 3
	// Environment: something around the program refused: a port in use, a
	// database that can't be opened.
	Environment Code = 4
)

// Error is an error that knows its exit code and what to do about it.
type Error struct {
	Code Code
	// Hint is one line that says what to do next. May be empty.
	Hint string
	// Err is what went wrong.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Misused returns a Usage error; hint says what a valid input looks like.
func Misused(hint, format string, args ...any) error {
	return &Error{Code: Usage, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Refused returns an Environment error; hint says how to clear the way.
func Refused(hint, format string, args ...any) error {
	return &Error{Code: Environment, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// CodeOf returns the code that err ends the program with: OK for nil, Failure
// for an error that doesn't say.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Failure
}

// Explain writes err to w as one "error:" line, whatever lines it has, followed by a
// "hint:" line if err has one.
func Explain(w io.Writer, err error) {
	text := strings.Join(strings.FieldsFunc(err.Error(), isBreak), "; ")
	_, _ = fmt.Fprintf(w, "error: %s\n", strings.ReplaceAll(text, ":; ", ": "))
	if e, ok := errors.AsType[*Error](err); ok && e.Hint != "" {
		_, _ = fmt.Fprintf(w, "hint: %s\n", e.Hint)
	}
}

func isBreak(r rune) bool { return r == '\n' || r == '\t' }
