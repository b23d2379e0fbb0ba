// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestProtocolAndSuiteAgree compares the numbers in the names of the rules with
// those that spec/PROTOCOL.md says this suite proves.
func TestProtocolAndSuiteAgree(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../spec/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	stated := map[string]bool{}
	for _, m := range regexp.MustCompile("`storetest\\.([A-Z][0-9]+)`").FindAllStringSubmatch(string(text), -1) {
		stated[m[1]] = true
	}
	tested := map[string]bool{}
	for _, r := range rules[*sql.Tx]() {
		number, _, _ := strings.Cut(r.name, "_")
		tested[number] = true
		if !stated[number] {
			t.Errorf("spec/PROTOCOL.md does not say that this suite proves %s, which %s is about", number, r.name)
		}
		if !strings.HasSuffix(r.says, ".") {
			t.Errorf("%s says %q, which is no sentence", r.name, r.says)
		}
	}
	for number := range stated {
		if !tested[number] {
			t.Errorf("spec/PROTOCOL.md says that this suite proves %s, and no rule is about it", number)
		}
	}
}
