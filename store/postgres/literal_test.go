// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
)

// TestLiterals sends hostile texts as part of statements, however the session
// reads strings, and expects them back as they were.
func TestLiterals(t *testing.T) {
	t.Parallel()
	for _, conforming := range []string{"on", "off"} {
		f := setup(t, nil, "standard_conforming_strings="+conforming, "backslash_quote=on", "client_encoding=UTF8")
		r, slot := f.relay()
		var all strings.Builder
		for c := rune(1); c < 0x180; c++ {
			all.WriteRune(c)
		}
		data := make([]byte, 256)
		for i := range data {
			data[i] = byte(i)
		}
		for i, s := range []string{
			"'", "''", `\`, `\'`, `'\''`, `\\'; COMMIT; --`, "'); DROP TABLE reprise_outbox; --", "$1", "$$", "E'", "é", "\u0130", "\u65e5\u672c \U0001F600",
			"--", "/*", "\r\n\t\x01\x7f", `\x41`, `\u0041`, `\101`, "a\x27b5c", all.String(),
		} {
			want := reprise.Message{
				ID: fmt.Sprintf("%d-%s", i, s), Source: s, Type: s, Subject: s, ContentType: s, Data: data,
				Time: time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), Header: map[string]string{s: s},
			}
			f.enqueue(want)
			p, err := r.Fetch(f.ctx, slot, 10)
			if err != nil || len(p.Messages) != 1 {
				t.Fatalf("%q: %d messages, error %v", s, len(p.Messages), err)
			}
			got := p.Messages[0]
			if got.ID != want.ID || got.Source != s || got.Type != s || got.Subject != s || got.ContentType != s || !slices.Equal(got.Data, data) ||
				!got.Time.Equal(want.Time) || got.Header[s] != s {
				t.Errorf("%s: %q came back as %+v", conforming, s, got)
			}
			if err := r.Advance(f.ctx, slot, p, nil); err != nil {
				t.Fatal(err)
			}
			in := reprise.Intent{Caller: reprise.Caller(s), Operation: reprise.Operation(s), Key: "k", Fingerprint: reprise.Fingerprint{1, byte(i)}}
			c := claim(in)
			if _, _, err := f.order(f.ctx, c, nil); err != nil {
				t.Fatal(err)
			}
			if e, err := f.Find(f.ctx, in); err != nil || e.Intent != in || e.Token != c.Token {
				t.Errorf("%s: %q is kept as %+v, error %v", conforming, s, e.Intent, err)
			}
			f.exec("DELETE FROM orders")
		}
		for _, bad := range []string{"a\x00b", "\xff"} {
			in := intent("k-1")
			in.Caller = reprise.Caller(bad)
			if _, _, err := f.order(f.ctx, claim(in), nil); err == nil || !strings.Contains(err.Error(), "can't be stored") {
				t.Errorf("%q as a caller: %v", bad, err)
			}
		}
	}
}
