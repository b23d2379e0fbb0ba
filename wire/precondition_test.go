// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

type ifMatchVector struct {
	Name    string       `json:"name"`
	Lines   []string     `json:"lines"`
	Current string       `json:"current"`
	Present bool         `json:"present"`
	Match   bool         `json:"match"`
	Code    reprise.Code `json:"code"`
}

func TestIfMatch(t *testing.T) {
	t.Parallel()
	rows := vectors[[]ifMatchVector](t, "if-match.json")
	if len(rows) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, row := range rows {
		t.Run("W6 "+row.Name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if len(row.Lines) > 0 {
				h["If-Match"] = row.Lines
			}
			present, match, err := wire.IfMatch(h, row.Current)
			if row.Code != "" {
				row.Present = true // Malformed is not missing.
			}
			if present != row.Present || match != row.Match || reprise.CodeOf(err) != row.Code {
				t.Errorf("%q against %s is %v, %v, %v", row.Lines, row.Current, present, match, err)
			}
		})
	}
}

func TestETag(t *testing.T) {
	t.Parallel()

	t.Run("W6 is the version in quotes", func(t *testing.T) {
		t.Parallel()
		for version, want := range map[string]string{
			"": `""`, "7": `"7"`, "v1.2-rc_3": `"v1.2-rc_3"`, `a"b`: `"a%22b"`, "a b": `"a%20b"`, "50%": `"50%25"`, "\n": `"%0A"`, "\u00fc": "\"\u00fc\"",
		} {
			if got := wire.ETag(version); got != want {
				t.Errorf("version %q is %s; want %s", version, got, want)
			}
		}
	})

	t.Run("W6 matches itself and no other version", func(t *testing.T) {
		t.Parallel()
		version := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune(`1"%2 `)), 0, 4, -1))
		rapid.Check(t, func(t *rapid.T) {
			a, b := version.Draw(t, "a"), version.Draw(t, "b")
			h := http.Header{"If-Match": {wire.ETag(a)}}
			present, match, err := wire.IfMatch(h, wire.ETag(b))
			if !present || err != nil || match != (a == b) {
				t.Fatalf("%q and %q: %v, %v, %v", a, b, present, match, err)
			}
			if strings.ContainsAny(wire.ETag(a)[1:len(wire.ETag(a))-1], "\" \r\n\x00") {
				t.Fatalf("%q has the tag %s", a, wire.ETag(a))
			}
		})
	})
}

func FuzzIfMatch(f *testing.F) {
	for _, row := range vectors[[]ifMatchVector](f, "if-match.json") {
		f.Add(strings.Join(row.Lines, ","), row.Current)
	}
	f.Fuzz(func(t *testing.T, line, current string) {
		present, match, err := wire.IfMatch(http.Header{"If-Match": {line}}, current)
		if !present || match && err != nil || err != nil && reprise.CodeOf(err) != reprise.CodeInvalid {
			t.Fatalf("%q against %q is %v, %v, %v", line, current, present, match, err)
		}
		if match && strings.Trim(line, " \t") != "*" && !strings.Contains(line, current) {
			t.Fatalf("%q matches %q", line, current)
		}
		if err != nil {
			return
		}
		// Naming the current version too makes it match; no weak tag does.
		if current := wire.ETag(current); strings.Trim(line, " \t") != "*" {
			if _, match, err := wire.IfMatch(http.Header{"If-Match": {line, current}}, current); !match || err != nil {
				t.Fatalf("%q and %s do not match %s: %v", line, current, current, err)
			}
			if _, match, _ := wire.IfMatch(http.Header{"If-Match": {"W/" + current}}, current); match {
				t.Fatalf("W/%s matches", current)
			}
		}
	})
}

func ExampleIfMatch() {
	current := wire.ETag("7")
	for _, line := range []string{`"7"`, `"6", "7"`, `"6"`, `W/"7"`, "7"} {
		present, match, err := wire.IfMatch(http.Header{"If-Match": {line}}, current)
		fmt.Println(line, present, match, err != nil)
	}
	// Output:
	// "7" true true false
	// "6", "7" true true false
	// "6" true false false
	// W/"7" true false false
	// 7 true false true
}
