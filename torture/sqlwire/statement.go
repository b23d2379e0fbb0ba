// SPDX-License-Identifier: Apache-2.0

package sqlwire

import "strings"

// begins reports whether a query text begins a transaction, perhaps with more
// statements after it.
func begins(query string) bool {
	w := words(query)
	return len(w) > 0 && (w[0] == "BEGIN" || w[0] == "START" && len(w) > 1 && w[1] == "TRANSACTION")
}

// ends reports whether the last statement of a query text ends a transaction.
func ends(query string) bool {
	query = strings.TrimRight(query, "; \t\r\n")
	w := words(query[strings.LastIndexByte(query, ';')+1:])
	return len(w) > 0 && (w[0] == "COMMIT" || w[0] == "END" || w[0] == "ROLLBACK" && len(w) == 1)
}

// words returns the words of the first statement, in upper case.
func words(query string) []string {
	first, _, _ := strings.Cut(query, ";")
	return strings.Fields(strings.ToUpper(first))
}
