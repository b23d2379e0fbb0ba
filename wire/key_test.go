// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

type keyVector struct {
	Name  string       `json:"name"`
	Rule  string       `json:"rule"`
	Lines []string     `json:"lines"`
	Key   reprise.Key  `json:"key"`
	Code  reprise.Code `json:"code"`
}

func TestReadKey(t *testing.T) {
	t.Parallel()
	rows := vectors[[]keyVector](t, "keys.json")
	if len(rows) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, row := range rows {
		t.Run(row.Rule+" "+row.Name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if len(row.Lines) > 0 {
				h[wire.HeaderKey] = row.Lines
			}
			k, err := wire.ReadKey(h)
			if k != row.Key || reprise.CodeOf(err) != row.Code {
				t.Fatalf("%q is %q, %v; want %q, %q", row.Lines, k, err, row.Key, row.Code)
			}
			if err == nil {
				if err := k.Validate(); err != nil {
					t.Errorf("the key is not valid: %v", err)
				}
				return
			}
			if reprise.OutcomeOf(err) != reprise.NotProcessed {
				t.Errorf("the outcome is %v", reprise.OutcomeOf(err))
			}
			// What was sent may be anything, and is not repeated (SEC-11).
			for _, line := range row.Lines {
				if len(line) > 3 && strings.Contains(err.Error(), line) {
					t.Errorf("%q repeats what was sent", err)
				}
			}
		})
	}
	t.Run("K7 10 KB", func(t *testing.T) {
		t.Parallel()
		for _, line := range []string{strings.Repeat("k", 10<<10), `"` + strings.Repeat(`\"`, 5<<10) + `"`} {
			k, err := wire.ReadKey(http.Header{wire.HeaderKey: {line}})
			if k != "" || reprise.CodeOf(err) != reprise.CodeKeyInvalid {
				t.Errorf("a key of %d bytes is read as %d bytes, %v", len(line), len(k), err)
			}
		}
	})
}

// TestReadKeyFromSocket sends raw bytes to a real server, because net/http has
// its own mind about fields: what it lets through is read like any other field.
func TestReadKeyFromSocket(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, err := wire.ReadKey(r.Header)
		if err != nil {
			wire.ProblemOf(err).Write(w)
			return
		}
		fmt.Fprintf(w, "key %q", k)
	}))
	t.Cleanup(server.Close)
	for name, row := range map[string]struct{ field, want string }{
		"bare":               {"Idempotency-Key: abc\r\n", `200 key "abc"`},
		"quoted":             {"Idempotency-Key: \"abc\"\r\n", `200 key "abc"`},
		"name in lower case": {"idempotency-key: abc\r\n", `200 key "abc"`},
		"trailing space":     {"Idempotency-Key:   abc \t \r\n", `200 key "abc"`},
		"none":               {"", "400 key-missing"},
		"empty":              {"Idempotency-Key:\r\n", "400 key-invalid"},
		"two lines":          {"Idempotency-Key: abc\r\nIdempotency-Key: abc\r\n", "400 key-invalid"},
		"two names":          {"Idempotency-Key: abc\r\nIDEMPOTENCY-KEY: def\r\n", "400 key-invalid"},
		"comma-joined":       {"Idempotency-Key: abc, def\r\n", "400 key-invalid"},
		"UTF-8":              {"Idempotency-Key: caf\u00e9\r\n", "400 key-invalid"},
		"NUL":                {"Idempotency-Key: a\x00b\r\n", "400 "},
		"bare CR":            {"Idempotency-Key: a\rb\r\n", "400 "},
		"folded":             {"Idempotency-Key: \"a\r\n b\"\r\n", "200 key \"a b\""},
		"injected field":     {"Idempotency-Key: a\r\nX-Evil: 1\r\n", `200 key "a"`},
		"space before colon": {"Idempotency-Key : abc\r\n", "400 "},
		"10 KB":              {"Idempotency-Key: " + strings.Repeat("k", 10<<10) + "\r\n", "400 key-invalid"},
	} {
		t.Run("K7 "+name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n"+row.field+"\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(resp.StatusCode, " ", string(body))
			if p, ok := wire.ReadProblem(resp, body); ok {
				got = fmt.Sprint(resp.StatusCode, " ", p.Code)
			}
			if got != row.want && (row.want != "400 " || !strings.HasPrefix(got, row.want)) {
				t.Errorf("the server answers %q; want %q", got, row.want)
			}
		})
	}
}

func TestSetKey(t *testing.T) {
	t.Parallel()

	t.Run("K7 each key is read as it was set", func(t *testing.T) {
		t.Parallel()
		key := rapid.StringOfN(rapid.RuneFrom(nil, &printableASCII), 1, reprise.MaxKeyLen, -1)
		rapid.Check(t, func(t *rapid.T) {
			k := reprise.Key(key.Draw(t, "key"))
			h := http.Header{wire.HeaderKey: {"an", "earlier one"}}
			wire.SetKey(h, k)
			got, err := wire.ReadKey(h)
			if err != nil || got != k {
				t.Fatalf("%q becomes %q and is read as %q, %v", k, h[wire.HeaderKey], got, err)
			}
			item, err := httpsfv.UnmarshalItem(h[wire.HeaderKey])
			if err != nil || item.Value != string(k) {
				t.Fatalf("%q is not a structured-field string: %v, %v", h[wire.HeaderKey], item.Value, err)
			}
		})
	})

	t.Run("K1 a key that is none does not get through", func(t *testing.T) {
		t.Parallel()
		for _, k := range []reprise.Key{"", "a\r\nX: 1", "caf\u00e9", reprise.Key(strings.Repeat("k", 256))} {
			h := http.Header{}
			wire.SetKey(h, k)
			if got, err := wire.ReadKey(h); reprise.CodeOf(err) != reprise.CodeKeyInvalid {
				t.Errorf("%q is read as %q, %v", k, got, err)
			}
		}
	})
}

func FuzzReadKey(f *testing.F) {
	for _, row := range vectors[[]keyVector](f, "keys.json") {
		if len(row.Lines) == 1 {
			f.Add(row.Lines[0])
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		k, err := wire.ReadKey(http.Header{wire.HeaderKey: {line}})
		if err != nil {
			if code := reprise.CodeOf(err); code != reprise.CodeKeyInvalid || k != "" {
				t.Fatalf("%q is %q with code %q", line, k, code)
			}
			return
		}
		if err := k.Validate(); err != nil {
			t.Fatalf("%q is read as %q: %v", line, k, err)
		}
		h := http.Header{}
		wire.SetKey(h, k)
		if again, err := wire.ReadKey(h); err != nil || again != k {
			t.Fatalf("%q is written as %q and read as %q, %v", k, h[wire.HeaderKey], again, err)
		}
		// Where the specification of the field gives a value, it is ours.
		if item, err := httpsfv.UnmarshalItem([]string{line}); err == nil {
			if s, ok := item.Value.(string); ok && (s != string(k) || len(item.Params.Names()) > 0) {
				t.Fatalf("%q is %q with %v by RFC 9651, and was read as %q", line, s, item.Params.Names(), k)
			}
		}
	})
}

func ExampleReadKey() {
	for _, value := range []string{`"0190163d-8694-739b-aea5-966c26f8ad91"`, "0190163d-8694-739b-aea5-966c26f8ad91", "one, two"} {
		k, err := wire.ReadKey(http.Header{wire.HeaderKey: {value}})
		fmt.Println(k, err)
	}
	// Output:
	// 0190163d-8694-739b-aea5-966c26f8ad91 <nil>
	// 0190163d-8694-739b-aea5-966c26f8ad91 <nil>
	//  key-invalid: the Idempotency-Key field holds a list; send one key
}
