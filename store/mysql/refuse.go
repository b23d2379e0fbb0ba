// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"fmt"
	"slices"
)

// begins are the words with which a handler's statements may begin: those that
// read or write rows. MySQL has too many others that commit behind their back, or
// change the session for whoever has the connection next: all that defines, LOCK,
// SET, CALL of a procedure that commits, and more with each version.
var begins = []string{
	"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "(",
	"DO", "SHOW", "DESCRIBE", "DESC", "EXPLAIN",
}

// refuse keeps a handler's statements inside its transaction (rule L10). What is
// a string depends on the SQL mode and the character set of the connection: a
// backslash may hide the quote behind it. So the text must be harmless both ways.
func refuse(query string) error {
	for _, escapes := range []bool{true, false} {
		for head := range statements(query, escapes) {
			if isHidden(head) {
				return fmt.Errorf("mysql: a handler must not hide statements in %s comments", head)
			}
			if !slices.Contains(begins, head) {
				return fmt.Errorf("mysql: a handler must not say %.40s; it may read and write rows, returns an error to roll back, and nil to commit", head)
			}
		}
	}
	return nil
}
