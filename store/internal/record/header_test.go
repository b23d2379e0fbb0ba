// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/store/internal/record"
)

// anyBytes draws a text of any bytes.
var anyBytes = rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "bytes")) })

// TestHeader keeps rule L4 for header fields: bytes, not text.
func TestHeader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.MapOfN(anyBytes, rapid.SliceOfN(anyBytes, 0, 3), 0, 4).Draw(t, "header")
		got, err := record.DecodeHeader(valid(t, record.EncodeHeader(header)))
		if err != nil || !maps.EqualFunc(got, header, slices.Equal) {
			t.Errorf("%q came back as %q, %v", header, got, err)
		}
	})
}

// TestAttributes is the same for those of messages.
func TestAttributes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.MapOfN(anyBytes, anyBytes, 0, 4).Draw(t, "header")
		got, err := record.DecodeAttributes(valid(t, record.EncodeAttributes(header)))
		if err != nil || !maps.Equal(got, header) {
			t.Errorf("%q came back as %q, %v", header, got, err)
		}
	})
}

// valid says that stored is text in UTF-8 and JSON, which a column of text takes
// and people can read.
func valid(t *rapid.T, stored string) string {
	if !utf8.ValidString(stored) || !json.Valid([]byte(stored)) {
		t.Errorf("%q is not JSON in UTF-8", stored)
	}
	return stored
}

// TestEveryByte needs no luck to meet each of them.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	for n := range 256 {
		s := string([]byte{byte(n)})
		stored := record.EncodeHeader(map[string][]string{s: {s, "x" + s + s}})
		got, err := record.DecodeHeader(stored)
		if err != nil || !slices.Equal(got[s], []string{s, "x" + s + s}) {
			t.Errorf("byte %#x is stored as %s and came back as %q, %v", n, stored, got, err)
		}
	}
}

func TestNoHeader(t *testing.T) {
	t.Parallel()
	if stored := record.EncodeHeader(nil) + record.EncodeAttributes(nil); stored != "" {
		t.Errorf("no header is stored as %q", stored)
	}
	header, err := record.DecodeHeader("")
	attributes, err2 := record.DecodeAttributes("")
	if header != nil || attributes != nil || err != nil || err2 != nil {
		t.Errorf("no header came back as %v and %v, %v, %v", header, attributes, err, err2)
	}
}

// TestOneEncoding: equal headers are stored as equal text.
func TestOneEncoding(t *testing.T) {
	t.Parallel()
	header := map[string][]string{"Etag": {`"v1"`}, "Content-Type": {"text/plain"}, "X": {}}
	const want = `{"Content-Type":["text/plain"],"Etag":["\"v1\""],"X":[]}`
	for range 8 {
		if got := record.EncodeHeader(header); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestDamagedHeader(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"{", "[1]", `{"A":"b"}`, `{"A":["Ā"]}`, `{"Ā":["b"]}`, "{\"A\":[\"\xff\"]}"} {
		if header, err := record.DecodeHeader(stored); err == nil {
			t.Errorf("%q was read as %q", stored, header)
		}
	}
	if header, err := record.DecodeAttributes(`{"A":["b"]}`); err == nil {
		t.Errorf("fields of several values were read as %q", header)
	}
}

var result = map[string][]string{"Content-Type": {"application/json"}, "Etag": {`"v1"`}, "Location": {"/orders/0190a1b2-c3d4-7000-8000-000000000000"}}

func BenchmarkEncodeHeader(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		record.EncodeHeader(result)
	}
}

func BenchmarkDecodeHeader(b *testing.B) {
	b.ReportAllocs()
	stored := record.EncodeHeader(result)
	for b.Loop() {
		if _, err := record.DecodeHeader(stored); err != nil {
			b.Fatal(err)
		}
	}
}
