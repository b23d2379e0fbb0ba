// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"fmt"
	"slices"
	"strings"
)

// ends are the statements that end or nest the transaction, or leave something
// behind on a connection that others use: settings, prepared statements, channels.
var ends = []string{
	"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE",
	"PREPARE", "DEALLOCATE", "DISCARD", "LISTEN", "UNLISTEN", "LOAD", "RESET",
}

// ours are settings that a handler can't have for itself, not even until it ends:
// how strings are read, the token of the transaction, and that a commit is on disk
// when it is answered.
var ours = []string{"STANDARD_CONFORMING_STRINGS", "REPRISE", "SYNCHRONOUS_COMMIT"}

// Refuse keeps a handler's statements inside its transaction (rule L10): it
// returns why a query must not be run, or nil. It looks at every statement in it.
//
// What it can't see is inside of functions. They can't end a transaction that was
// begun outside of them, but can change settings of the session.
func Refuse(query string) error {
	for _, escapes := range []bool{false, true} {
		for head := range heads(query, escapes) {
			if err := refuse(head); err != nil {
				return err
			}
		}
		// How a string reads depends on a setting only where there is a backslash.
		if strings.IndexByte(query, '\\') < 0 {
			return nil
		}
	}
	return nil
}

func refuse(head []string) error {
	head = append(slices.Clip(head), make([]string, headWords)...)
	switch {
	case slices.Contains(ends, head[0]):
		return fmt.Errorf("postgres: a handler must not say %s; return an error to roll back, nil to commit", head[0])
	case head[0] == "SET" && head[1] == "LOCAL" && !slices.Contains(ours, strings.Trim(head[2], `"`)),
		head[0] == "SET" && head[1] == "CONSTRAINTS":
		return nil
	case head[0] == "SET" && head[1] == "LOCAL":
		return fmt.Errorf("postgres: a handler must not set %s; the guarantee rests on it", head[2])
	case head[0] == "SET":
		return fmt.Errorf("postgres: a handler must not say SET %s; what it sets would outlive it, use SET LOCAL", head[1])
	case head[0] == "COPY":
		return fmt.Errorf("postgres: a handler must not say COPY; its protocol needs the connection itself")
	}
	return nil
}

// Single says whether a query is one statement.
func Single(query string) bool {
	return single(query, func(string) bool { return true })
}

// OnlyRows says whether a query is one statement that reads or writes rows, and
// so can't end a transaction, whether or not that was begun by BEGIN.
func OnlyRows(query string) bool {
	return single(query, func(word string) bool {
		return slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH", "TABLE"}, word)
	})
}

// single says whether a query is one statement, which begins with a word like that.
func single(query string, like func(word string) bool) bool {
	for _, escapes := range []bool{false, true} {
		n := 0
		for head := range heads(query, escapes) {
			if n++; n > 1 || !like(head[0]) {
				return false
			}
		}
		if n != 1 {
			return false
		}
	}
	return true
}
