// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

func mustFingerprint(tb rapid.TB, s wire.Shape) reprise.Fingerprint {
	tb.Helper()
	f, err := s.Fingerprint()
	if err != nil {
		tb.Fatalf("%+v: %v", s, err)
	}
	return f
}

func TestFingerprintVectors(t *testing.T) {
	t.Parallel()
	v := vectors[fingerprintVectors](t, "fingerprint.json")
	if len(v.Same) == 0 || len(v.Different) == 0 || len(v.Refused) == 0 || len(v.Digests) == 0 {
		t.Fatal("a group of vectors is empty")
	}
	for _, g := range v.Same {
		t.Run(g.Rule+" same: "+g.Name, func(t *testing.T) {
			t.Parallel()
			first := mustFingerprint(t, shape(t, g.Request, g.Variants[0]))
			for _, variant := range g.Variants[1:] {
				if f := mustFingerprint(t, shape(t, g.Request, variant)); f != first {
					t.Errorf("%s and %s differ", g.Variants[0], variant)
				}
			}
		})
	}
	for _, g := range v.Different {
		t.Run(g.Rule+" different: "+g.Name, func(t *testing.T) {
			t.Parallel()
			seen := map[reprise.Fingerprint]string{}
			for _, variant := range g.Variants {
				f := mustFingerprint(t, shape(t, g.Request, variant))
				if other, ok := seen[f]; ok {
					t.Errorf("%s and %s are the same", other, variant)
				}
				seen[f] = string(variant)
			}
		})
	}
	for _, g := range v.Refused {
		t.Run(g.Rule+" refused: "+g.Name, func(t *testing.T) {
			t.Parallel()
			for _, variant := range g.Variants {
				f, err := shape(t, g.Request, variant).Fingerprint()
				if reprise.CodeOf(err) != reprise.CodeInvalid || reprise.OutcomeOf(err) != reprise.NotProcessed {
					t.Errorf("%s gives %v, %v", variant, f, err)
				}
				if f.Version() != 0 {
					t.Errorf("%s is refused and has a fingerprint", variant)
				}
			}
		})
	}
	for _, d := range v.Digests {
		t.Run("F1 digest: "+d.Name, func(t *testing.T) {
			t.Parallel()
			f := mustFingerprint(t, shape(t, d.Request, nil))
			if f.String() != d.Fingerprint {
				t.Errorf("fingerprint is %s and not %s", f, d.Fingerprint)
			}
			if f.Version() != 1 {
				t.Errorf("version is %d", f.Version())
			}
			encoded, err := hex.DecodeString(d.Encoded)
			if err != nil {
				t.Fatal(err)
			}
			h := sha256.New()
			if s := shape(t, d.Request, nil); len(s.Secret) > 0 {
				h = hmac.New(sha256.New, s.Secret)
			}
			h.Write(encoded)
			if got := hex.EncodeToString(h.Sum([]byte{1})); got != d.Fingerprint {
				t.Errorf("the digest of the encoded bytes is %s and not %s", got, d.Fingerprint)
			}
		})
	}
}

// TestFingerprintIsStable takes fingerprints of one shape from many goroutines:
// the scratch memory that they share must not show.
func TestFingerprintIsStable(t *testing.T) {
	t.Parallel()
	v := vectors[fingerprintVectors](t, "fingerprint.json")
	var shapes []wire.Shape
	var want []reprise.Fingerprint
	for _, g := range slices.Concat(v.Same, v.Different) {
		for _, variant := range g.Variants {
			s := shape(t, g.Request, variant)
			shapes, want = append(shapes, s), append(want, mustFingerprint(t, s))
		}
	}
	bodies := make([][]byte, len(shapes))
	for i, s := range shapes {
		bodies[i] = bytes.Clone(s.Body)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 5 * len(shapes) {
				i := (n*7 + g*13) % len(shapes)
				if f, err := shapes[i].Fingerprint(); err != nil || f != want[i] {
					t.Errorf("shape %d gives %v, %v", i, f, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, s := range shapes {
		if !bytes.Equal(s.Body, bodies[i]) {
			t.Errorf("the body of shape %d was written to", i)
		}
	}
}

// TestFingerprintQuery compares with net/url, which is what handlers read a
// query with: shuffling names and escaping otherwise keeps the fingerprint, and
// any other change of the values does not.
func TestFingerprintQuery(t *testing.T) {
	t.Parallel()
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab&=+% ;ü\x00")), 0, 4, -1)
	name := rapid.OneOf(text, rapid.SampledFrom([]string{"a", "b"})) // Names are often given twice.
	rapid.Check(t, func(t *rapid.T) {
		values := url.Values{}
		for range rapid.IntRange(0, 40).Draw(t, "pairs") {
			values.Add(name.Draw(t, "name"), text.Draw(t, "value"))
		}
		names := make([]string, 0, len(values))
		for name := range values {
			names = append(names, name)
		}
		var parts []string
		for _, name := range rapid.Permutation(slices.Sorted(slices.Values(names))).Draw(t, "order") {
			for _, v := range values[name] {
				parts = append(parts, escapeAll(name)+"="+url.QueryEscape(v))
			}
		}
		a := wire.Shape{RawQuery: values.Encode()}
		b := wire.Shape{RawQuery: strings.Join(parts, "&")}
		if mustFingerprint(t, a) != mustFingerprint(t, b) {
			t.Fatalf("%q and %q differ", a.RawQuery, b.RawQuery)
		}

		other, err := url.ParseQuery(values.Encode())
		if err != nil {
			t.Fatal(err)
		}
		other.Add(text.Draw(t, "name"), text.Draw(t, "value"))
		if c := (wire.Shape{RawQuery: other.Encode()}); mustFingerprint(t, a) == mustFingerprint(t, c) {
			t.Fatalf("%q and %q are the same", a.RawQuery, c.RawQuery)
		}
	})
}

// escapeAll escapes every byte, in lower case.
func escapeAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

// TestFingerprintHidesNothingInErrors keeps the content of a request out of the
// answer to it.
func TestFingerprintHidesNothingInErrors(t *testing.T) {
	t.Parallel()
	const secret = "4111-1111-1111-1111"
	for _, s := range []wire.Shape{
		{ContentType: "application/json", Body: []byte(`{"` + secret + `":1,"` + secret + `":2}`)},
		{ContentType: "application/json", Body: []byte(`{"card":"` + secret)},
		{ContentType: "application/json", Body: []byte(`{"card":` + secret + `}`)},
		{ContentType: "application/x-www-form-urlencoded", Body: []byte("card=" + secret + "%")},
		{ContentType: "multipart/form-data; boundary=" + secret, Body: []byte(secret)},
		{Path: "/" + secret + "%"},
		{RawQuery: secret + "=%"},
	} {
		_, err := s.Fingerprint()
		if reprise.CodeOf(err) != reprise.CodeInvalid {
			t.Errorf("%+v: error is %v", s, err)
		} else if strings.Contains(err.Error(), "4111") {
			t.Errorf("%v gives away what was sent", err)
		}
	}
}

// TestFingerprintBombs refuses, or reads at a bounded cost, bodies that are made
// to be expensive.
func TestFingerprintBombs(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, row := range map[string]struct {
		body    string
		refused bool
	}{
		"arrays in arrays":       {strings.Repeat("[", size), true},
		"objects in objects":     {strings.Repeat(`{"a":`, size/5), true},
		"one level too many":     {strings.Repeat("[", wire.MaxDepth+1) + strings.Repeat("]", wire.MaxDepth+1), true},
		"as many as are allowed": {strings.Repeat("[", wire.MaxDepth) + strings.Repeat("]", wire.MaxDepth), false},
		"a long number":          {strings.Repeat("9", size), false},
		"a long fraction":        {"0." + strings.Repeat("0", size) + "1", false},
		"a huge exponent":        {"1e999999999", false},
		"a long exponent":        {"1e" + strings.Repeat("9", size), true},
		"zeros in an exponent":   {"1e" + strings.Repeat("0", size), false},
		"many members":           {"{" + strings.TrimSuffix(manyMembers(size/8), ",") + "}", false},
		"the same member often":  {"{" + strings.Repeat(`"a":1,`, size/6) + `"a":1}`, true},
		"deep and wide":          {strings.Repeat(`{"a":`, wire.MaxDepth-1) + "[" + strings.Repeat("1,", size/2) + "1]" + strings.Repeat("}", wire.MaxDepth-1), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire.Shape{ContentType: "application/json", Body: []byte(row.body)}.Fingerprint()
			if row.refused != errors.Is(err, &reprise.Error{Code: reprise.CodeInvalid}) || !row.refused && err != nil {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%05x":0,`, n-i)
	}
	return b.String()
}

func ExampleShape_Fingerprint() {
	shape := wire.Shape{
		Method: "POST", Operation: "create-order", Path: "/orders",
		ContentType: "application/json", Header: http.Header{},
	}
	for _, body := range []string{`{"sku":"shirt","amount":1200}`, `{"amount": 1.2e3, "sku": "shirt"}`, `{"sku":"shirt","amount":1201}`} {
		shape.Body = []byte(body)
		f, err := shape.Fingerprint()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(f.Version(), f.String()[:10])
	}
	// Output:
	// 1 018e4e7ec6
	// 1 018e4e7ec6
	// 1 018d7b41c5
}
