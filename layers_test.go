// SPDX-License-Identifier: Apache-2.0

package reprise_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/reprise-go/reprise"

// law is one rule of the dependency law (docs/design.md, "Who may know whom").
// A package under from must not reach a package under any of never.
type law struct {
	rule string
	from []string
	// never are prefixes of import paths; those without a dot are of the standard
	// library, those that begin with "./" are ours.
	never []string
}

var laws = []law{
	{
		rule:  "1: the words import nothing of ours, nor net/http, nor database/sql",
		from:  []string{"."},
		never: []string{"./", "net/http", "database/sql"},
	},
	{
		rule:  "2: a client holds no storage",
		from:  []string{"./retry", "./retryhttp"},
		never: []string{"./store", "./ledger", "./ledgerhttp", "./outbox", "./inbox", "database/sql"},
	},
	{
		rule:  "2: the ends meet only in wire and contract",
		from:  []string{"./ledgerhttp"},
		never: []string{"./retry", "./retryhttp"},
	},
	{
		rule:  "3: ledger, outbox and inbox meet in the caller's transaction",
		from:  []string{"./ledger"},
		never: []string{"./outbox", "./inbox"},
	},
	{
		rule:  "3: ledger, outbox and inbox meet in the caller's transaction",
		from:  []string{"./outbox"},
		never: []string{"./ledger", "./inbox"},
	},
	{
		rule:  "3: ledger, outbox and inbox meet in the caller's transaction",
		from:  []string{"./inbox"},
		never: []string{"./ledger", "./outbox"},
	},
	{
		rule: "4: store and its drivers know none of their users",
		from: []string{"./store"},
		never: []string{
			"./ledger", "./ledgerhttp", "./outbox", "./inbox", "./retry", "./retryhttp", "./wire", "./contract",
			"net/http",
		},
	},
	{
		rule:  "7: the library links no database driver; its user brings one",
		from:  []string{".", "./"},
		never: []string{"modernc.org/", "github.com/mattn/", "github.com/ncruces/", "github.com/jackc/", "github.com/lib/", "github.com/go-sql-driver/"},
	},
}

// leaves are the third-party modules that the library itself may link.
var leaves = []string{
	"github.com/dunglas/httpsfv",
	"github.com/go-json-experiment/json",
}

// testLeaves are those that test-support packages, which users' tests import,
// may link beside them.
var testLeaves = []string{"pgregory.net/rapid"}

// listed is what this test reads of one package in "go list -json".
type listed struct {
	ImportPath string   `json:"ImportPath"`
	Deps       []string `json:"Deps"`
}

func TestDependencyLaw(t *testing.T) {
	t.Parallel()
	packages := goList(t)
	if len(packages) < 3 {
		t.Fatalf("go list found %d packages; the law was not checked", len(packages))
	}
	for _, p := range packages {
		for _, l := range laws {
			if !covers(l.from, p.ImportPath) {
				continue
			}
			for _, dep := range p.Deps {
				if covers(l.never, dep) && !within(l.from, dep) {
					t.Errorf("%s reaches %s and breaks rule %s", p.ImportPath, dep, l.rule)
				}
			}
		}
		checkName(t, p)
		checkThirdParty(t, p)
	}
}

// checkName keeps rule 6: a package is named by its role.
func checkName(t *testing.T, p listed) {
	t.Helper()
	for _, vague := range []string{"util", "utils", "common", "helpers", "types", "models"} {
		if path.Base(p.ImportPath) == vague {
			t.Errorf("%s breaks rule 6: no package named %q; name it by its role", p.ImportPath, vague)
		}
	}
}

// checkThirdParty keeps the library's dependencies to the argued few.
func checkThirdParty(t *testing.T, p listed) {
	t.Helper()
	allowed := leaves
	if strings.HasSuffix(p.ImportPath, "/storetest") {
		allowed = slices.Concat(leaves, testLeaves)
	}
	for _, dep := range p.Deps {
		first, _, _ := strings.Cut(dep, "/")
		if !strings.Contains(first, ".") || isOurs(dep) {
			continue
		}
		if !slices.ContainsFunc(allowed, func(m string) bool { return dep == m || strings.HasPrefix(dep, m+"/") }) {
			t.Errorf("%s links %s; the library links only %v", p.ImportPath, dep, allowed)
		}
	}
}

// covers reports whether the package is one that the patterns name: "." is the
// root, "./x" is x and all below it, "./" is everything of ours but the root.
func covers(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ours, isPattern := strings.CutPrefix(pattern, "./")
		switch {
		case pattern == ".":
			return pkg == modulePath
		case isPattern && ours == "":
			return strings.HasPrefix(pkg, modulePath+"/")
		case isPattern:
			full := modulePath + "/" + ours
			return pkg == full || strings.HasPrefix(pkg, full+"/")
		case strings.HasSuffix(pattern, "/"):
			return strings.HasPrefix(pkg, pattern)
		}
		return pkg == pattern || strings.HasPrefix(pkg, pattern+"/")
	})
}

// within keeps a law's own subtree from counting against it.
func within(patterns []string, pkg string) bool {
	return isOurs(pkg) && covers(patterns, pkg)
}

func isOurs(pkg string) bool { return pkg == modulePath || strings.HasPrefix(pkg, modulePath+"/") }

func goList(t *testing.T) []listed {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Deps", "./...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list printed bad JSON: %v", err)
		}
		packages = append(packages, p)
	}
}

// TestDependencyLawCanFail proves that the check above can fail.
func TestDependencyLawCanFail(t *testing.T) {
	t.Parallel()
	for _, broken := range []struct{ from, dep, rule string }{
		{modulePath, "net/http", "1:"},
		{modulePath, modulePath + "/wire", "1:"},
		{modulePath + "/retryhttp", modulePath + "/store/sqlite", "2:"},
		{modulePath + "/ledgerhttp", modulePath + "/retryhttp", "2:"},
		{modulePath + "/outbox", modulePath + "/ledger", "3:"},
		{modulePath + "/store/sqlite", modulePath + "/ledger", "4:"},
		{modulePath + "/store/sqlite", "modernc.org/sqlite", "7:"},
	} {
		found := slices.ContainsFunc(laws, func(l law) bool {
			return strings.HasPrefix(l.rule, broken.rule) && covers(l.from, broken.from) &&
				covers(l.never, broken.dep) && !within(l.from, broken.dep)
		})
		if !found {
			t.Errorf("no rule %s forbids %s to reach %s", broken.rule, broken.from, broken.dep)
		}
	}
}
