// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
	"slices"
)

// ends are the statements that end, nest or escape the transaction in which a
// handler and its batch mates are.
var ends = []string{
	"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "VACUUM",
}

// readers are the PRAGMAs that tell and change nothing. All others outlive the
// handler on a connection that others use.
var readers = []string{
	"TABLE_INFO", "TABLE_XINFO", "TABLE_LIST", "INDEX_LIST", "INDEX_INFO", "INDEX_XINFO",
	"FOREIGN_KEY_LIST", "FOREIGN_KEY_CHECK", "DATABASE_LIST", "COLLATION_LIST", "FUNCTION_LIST",
	"MODULE_LIST", "PRAGMA_LIST", "COMPILE_OPTIONS", "DATA_VERSION", "INTEGRITY_CHECK", "QUICK_CHECK",
}

// refuse keeps a handler's statements inside its transaction (rule L10).
func refuse(query string) error {
	for head := range statements(query) {
		if slices.Contains(ends, head[0]) {
			return fmt.Errorf("sqlite: a handler must not say %s; return an error to roll back, nil to commit", head[0])
		}
		if head[0] == "PRAGMA" && !slices.Contains(readers, pragma(head)) {
			return fmt.Errorf("sqlite: a handler must not say PRAGMA %s; set it on the connections of the *sql.DB", pragma(head))
		}
	}
	return nil
}

// reusable is one statement that reads or writes rows.
func reusable(query string) bool {
	n, first := 0, ""
	for head := range statements(query) {
		n++
		first = head[0]
	}
	return n == 1 && slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES"}, first)
}

// pragma returns the name in PRAGMA [schema.]name.
func pragma(head []string) string {
	if len(head) >= 4 && head[2] == "." {
		return head[3]
	}
	if len(head) >= 2 {
		return head[1]
	}
	return ""
}
