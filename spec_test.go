// SPDX-License-Identifier: Apache-2.0

package reprise_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	ruleStart = regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\.\*\* `)
	citation  = regexp.MustCompile(`\b[KFLWCOIS]\d{1,2}\b`)
	proof     = regexp.MustCompile("`([a-z/]+)\\.([A-Za-z0-9_]+)`")
)

// TestProtocol keeps spec/PROTOCOL.md true: every rule has a source and a proof,
// each proof is a test that exists, and code cites no rule that is not there.
func TestProtocol(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("spec/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(string(text))
	if len(rules) < 60 {
		t.Fatalf("found %d rules; the protocol was not read", len(rules))
	}
	sources := goSources(t)

	for id, rule := range rules {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			_, evidence, ok := strings.Cut(rule, "*Source:*")
			if !ok || !strings.Contains(evidence, "*Proof:*") {
				t.Fatal("the rule has no source or no proof")
			}
			_, evidence, _ = strings.Cut(evidence, "*Proof:*")
			named := proof.FindAllStringSubmatch(evidence, -1)
			if len(named) == 0 {
				t.Error("no test is named as its proof")
			}
			for _, p := range named {
				if !proves(sources, p[1], p[2]) {
					t.Errorf("there is no test %s.%s", p[1], p[2])
				}
			}
		})
	}
	t.Run("no other rule is cited", func(t *testing.T) {
		t.Parallel()
		for path, source := range sources {
			for line := range strings.Lines(source) {
				if !strings.Contains(line, "rule") {
					continue // Other things have such names too.
				}
				for _, id := range citation.FindAllString(line, -1) {
					if _, ok := rules[id]; !ok {
						t.Errorf("%s cites %s: %s", path, id, strings.TrimSpace(line))
					}
				}
			}
		}
	})
}

// rulesOf returns the text of each rule, up to the next one or to the end of the
// list.
func rulesOf(text string) map[string]string {
	rules := map[string]string{}
	starts := ruleStart.FindAllStringSubmatchIndex(text, -1)
	for i, s := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		rule, _, _ := strings.Cut(text[s[1]:end], "\n\n")
		rules[text[s[2]:s[3]]] = rule
	}
	return rules
}

// goSources returns the Go files of the library, by their paths.
func goSources(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	others := []string{"torture", "bench", "examples", "cmd"} // Modules of their own.
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(others, path) || strings.HasPrefix(path, ".") && path != "."):
			return fs.SkipDir
		case filepath.Ext(path) == ".go":
			text, err := os.ReadFile(path)
			sources[filepath.ToSlash(path)] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// proves reports whether a package declares a test of that name, or, for
// storetest, whether the suite has subtests of that rule.
func proves(sources map[string]string, pkg, name string) bool {
	dir, declaration := pkg+"/", "func "+name+"("
	switch pkg {
	case "reprise":
		dir = ""
	case "storetest":
		dir, declaration = "store/storetest/", `"`+name+`_`
	}
	for path, source := range sources {
		inPackage := strings.HasPrefix(path, dir) && !strings.Contains(path[len(dir):], "/")
		if inPackage && strings.Contains(source, declaration) {
			return true
		}
	}
	return false
}
