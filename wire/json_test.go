// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

type canonicalVectors struct {
	Canonical []struct{ Name, JSON, Canonical string }
	Refused   []struct{ Name, JSON string }
}

func readCanonicalVectors(tb testing.TB) (v canonicalVectors) {
	tb.Helper()
	text, err := os.ReadFile("../spec/vectors/canonical-json.json")
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatal(err)
	}
	if len(v.Canonical) == 0 || len(v.Refused) == 0 {
		tb.Fatal("a group of vectors is empty")
	}
	return v
}

func canonical(text []byte, volatile ...string) ([]byte, error) {
	var c canonicalizer
	return c.append(nil, text, volatile)
}

func TestCanonicalJSON(t *testing.T) {
	t.Parallel()
	v := readCanonicalVectors(t)
	for _, row := range v.Canonical {
		t.Run("F3 "+row.Name, func(t *testing.T) {
			t.Parallel()
			got, err := canonical([]byte(row.JSON))
			if err != nil || string(got) != row.Canonical {
				t.Errorf("%s is %s, %v; want %s", row.JSON, got, err, row.Canonical)
			}
			again, err := canonical(got)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("%s is not its own canonical form but %s, %v", got, again, err)
			}
		})
	}
	for _, row := range v.Refused {
		t.Run("F3 refuses "+row.Name, func(t *testing.T) {
			t.Parallel()
			if got, err := canonical([]byte(row.JSON)); err == nil {
				t.Errorf("%q is %s", row.JSON, got)
			}
		})
	}
	t.Run("F3 appends, and keeps nothing between two texts", func(t *testing.T) {
		t.Parallel()
		var c canonicalizer
		if _, err := c.append(nil, []byte(`{"a":{"b":[1,`), []string{"x"}); err == nil {
			t.Fatal("a text that is cut off was accepted")
		}
		got, err := c.append([]byte("before "), []byte(`{"x":1,"a":2}`), nil)
		if err != nil || string(got) != `before {"a":2e0,"x":1e0}` {
			t.Errorf("got %s, %v", got, err)
		}
	})
	t.Run("F3 says what is wrong and where", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			`{"a":1,"a":2}`:                          "member given twice, before byte 13",
			`{"a":1}}`:                               "something after its JSON text, at byte 7",
			`[1,`:                                    "not valid JSON in UTF-8, near byte",
			`[1e1234567890123456789]`:                "exponent of more than 18 digits",
			strings.Repeat("[", 200):                 "more than 128 levels, at byte 128",
			"\"" + strings.Repeat("a", 9) + "\xff\"": "not valid JSON in UTF-8",
		} {
			if _, err := canonical([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q gives %v, which does not say %q", text, err, want)
			}
		}
	})
}

// TestCanonicalNumbers compares with exact rational arithmetic: two numbers have
// one canonical form if, and only if, they are equal.
func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		s += rapid.OneOf(rapid.Just("0"), rapid.StringMatching(`[1-9][0-9]{0,20}`), rapid.StringMatching(`[1-9]0{0,6}`)).Draw(t, "whole")
		s += rapid.OneOf(rapid.Just(""), rapid.StringMatching(`\.[0-9]{1,20}`), rapid.StringMatching(`\.0{1,4}[0-9]?`)).Draw(t, "fraction")
		s += rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[eE][+-]?0?[0-9]{1,2}`)).Draw(t, "exponent")
		return s
	})
	rational := func(t *rapid.T, s string) *big.Rat {
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatalf("%q is no number", s)
		}
		return r
	}
	form := func(t *rapid.T, s string) string {
		b, err := appendNumber([]byte("x"), []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(b[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		a := number.Draw(t, "a")
		// A neighbour is more likely to be equal than another number.
		b := rapid.OneOf(number, rapid.SampledFrom([]string{a + "0", shift(a), form(t, a)})).Draw(t, "b")
		if _, err := canonical([]byte(b)); err != nil { // "0" after an exponent may be too much.
			b = a
		}
		equal := rational(t, a).Cmp(rational(t, b)) == 0
		if (form(t, a) == form(t, b)) != equal {
			t.Fatalf("%s is %s and %s is %s; equal: %v", a, form(t, a), b, form(t, b), equal)
		}
		if rational(t, a).Cmp(rational(t, form(t, a))) != 0 {
			t.Fatalf("%s is not %s", a, form(t, a))
		}
	})
}

// shift writes the same number with the point moved by its exponent.
func shift(s string) string {
	if strings.ContainsAny(s, "eE") {
		return s
	}
	if whole, fraction, ok := strings.Cut(s, "."); ok {
		if strings.Trim(whole, "-0") == "" {
			return s
		}
		return whole + fraction + "e-" + big.NewInt(int64(len(fraction))).String()
	}
	return s + ".000e0"
}

func FuzzFingerprintJSON(f *testing.F) {
	v := readCanonicalVectors(f)
	for _, row := range v.Canonical {
		f.Add([]byte(row.JSON))
	}
	for _, row := range v.Refused {
		f.Add([]byte(row.JSON))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		got, err := canonical(text)
		if !bytes.Equal(text, before) {
			t.Fatal("the text was written to")
		}
		// Another reader that refuses invalid UTF-8 and members given twice accepts
		// the same texts, but for our two limits.
		valid := jsontext.Value(text).IsValid()
		if err != nil {
			if valid && !strings.Contains(err.Error(), "levels") && !strings.Contains(err.Error(), "exponent") {
				t.Fatalf("%q is valid, and refused: %v", text, err)
			}
			return
		}
		if !valid {
			t.Fatalf("%q is not valid, and has the form %s", text, got)
		}
		if again, err := canonical(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%s is not its own canonical form but %s, %v", got, again, err)
		}
		// Formatting, escaping and reordering change nothing.
		other, err := jsontext.AppendFormat(nil, text, jsontext.Multiline(true), jsontext.ReorderRawObjects(true),
			jsontext.EscapeForHTML(true), jsontext.EscapeForJS(true))
		if err != nil {
			t.Fatal(err)
		}
		if form, err := canonical(other); err != nil || !bytes.Equal(form, got) {
			t.Fatalf("%s is %s, and %s is %s, %v", text, got, other, form, err)
		}
		// The form has the value of the text, so that equal forms mean equal values.
		if !sameValue(decode(t, text), decode(t, got)) {
			t.Fatalf("%s is not what %s says", got, text)
		}
	})
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("%s: something follows: %v", text, err)
	}
	return v
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name := range a {
			if v, ok := b[name]; !ok || !sameValue(a[name], v) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(b))
	default:
		return a == b
	}
}

// sameNumber compares by rational arithmetic, as far as that can be afforded.
func sameNumber(a, b string) bool {
	for _, s := range []string{a, b} {
		if i := strings.IndexAny(s, "eE"); i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > 3 {
			return true
		}
	}
	x, ok1 := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok1 && ok2 && x.Cmp(y) == 0
}
