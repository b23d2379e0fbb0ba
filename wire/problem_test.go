// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

type problemVector struct {
	Code    reprise.Code    `json:"code"`
	Status  int             `json:"status"`
	Retry   string          `json:"retry"`
	Outcome reprise.Outcome `json:"outcome"`
	Wait    int             `json:"wait"`
}

func TestProblemOf(t *testing.T) {
	t.Parallel()
	rows := vectors[[]problemVector](t, "problems.json")

	for _, row := range rows {
		t.Run("W2 "+string(row.Code), func(t *testing.T) {
			t.Parallel()
			p := wire.ProblemOf(fmt.Errorf("wrapped: %w", &reprise.Error{Code: row.Code, Err: errors.New("secret")}))
			got := problemVector{p.Code, p.Status, p.Retry, p.Outcome, int(p.RetryAfter / time.Second)}
			if got != row {
				t.Errorf("got  %+v\nwant %+v", got, row)
			}
			if p.Type != "urn:reprise:problem:"+string(row.Code) || p.Title == "" {
				t.Errorf("type is %q, title is %q", p.Type, p.Title)
			}
		})
	}

	t.Run("W2 has a row for each code of the protocol", func(t *testing.T) {
		t.Parallel()
		listed := map[reprise.Code]bool{}
		for _, row := range rows {
			listed[row.Code] = true
		}
		declared := declaredCodes(t)
		if got := slices.Sorted(maps.Keys(listed)); !slices.Equal(got, declared) {
			t.Errorf("listed   %v\ndeclared %v", got, declared)
		}
	})

	t.Run("W1 tells nothing of an error that is not ours", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{
			errors.New("pq: duplicate key (card)=(4111)"),
			&reprise.Error{Code: reprise.CodeInternal, Op: "ledger.Do", Err: errors.New("card 4111")},
			nil,
		} {
			w := httptest.NewRecorder()
			wire.ProblemOf(err).Write(w)
			if body := w.Body.String(); w.Code != 500 || strings.Contains(body, "4111") || strings.Contains(body, "ledger.Do") {
				t.Errorf("%v is answered %d %s", err, w.Code, body)
			}
		}
	})

	t.Run("W1 keeps what the error knows", func(t *testing.T) {
		t.Parallel()
		p := wire.ProblemOf(&reprise.Error{
			Code: reprise.CodeInternal, Outcome: reprise.NotProcessed, Detail: "the shelf is locked",
			RetryAfter: 3 * time.Second, Reference: "/orders/1",
		})
		if p.Outcome != reprise.NotProcessed || p.Detail != "the shelf is locked" || p.RetryAfter != 3*time.Second || p.Reference != "/orders/1" {
			t.Errorf("got %+v", p)
		}
	})

	for name, row := range map[string]struct {
		err    reprise.Error
		status int
		retry  string
	}{
		"not found":                    {reprise.Error{Code: "not-found", Status: 404, Outcome: reprise.NotProcessed}, 404, wire.RetryFix},
		"a conflict that passes":       {reprise.Error{Code: "payment-in-progress", Status: 409, Outcome: reprise.NotProcessed}, 409, wire.RetrySameKey},
		"a decision":                   {reprise.Error{Code: "order-paid", Status: 409, Outcome: reprise.Rejected}, 409, wire.RetryNewKey},
		"too many requests":            {reprise.Error{Code: "quota", Status: 429, Outcome: reprise.NotProcessed}, 429, wire.RetrySameKey},
		"no status":                    {reprise.Error{Code: "odd"}, 500, wire.RetrySameKey},
		"a status that is no error":    {reprise.Error{Code: "odd", Status: 200}, 500, wire.RetrySameKey},
		"another status for our code":  {reprise.Error{Code: reprise.CodeKeyReused, Status: 409}, 409, wire.RetryNewKey},
		"a wrong status for our code":  {reprise.Error{Code: reprise.CodeKeyReused, Status: 999}, 422, wire.RetryNewKey},
		"an outcome that is not known": {reprise.Error{Code: "odd", Status: 502}, 502, wire.RetrySameKey},
	} {
		t.Run("W2 a code of the application: "+name, func(t *testing.T) {
			t.Parallel()
			p := wire.ProblemOf(&row.err)
			if p.Status != row.status || p.Retry != row.retry || p.Code != row.err.Code || p.Title == "" {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// declaredCodes reads the constants of package reprise, so that no code can be
// added without a row.
func declaredCodes(t *testing.T) (codes []reprise.Code) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			code, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, reprise.Code(code))
		}
		return true
	})
	slices.Sort(codes)
	return codes
}

func TestProblemWrite(t *testing.T) {
	t.Parallel()
	write := func(p wire.Problem, h http.Header) *http.Response {
		w := httptest.NewRecorder()
		maps.Copy(w.Header(), h)
		p.Write(w)
		return w.Result()
	}

	t.Run("W1 is the document and its fields", func(t *testing.T) {
		t.Parallel()
		resp := write(wire.ProblemOf(&reprise.Error{
			Code: reprise.CodeKeyExpired, Detail: `the key is from "May" & <June>`, Reference: "/orders/1",
		}), nil)
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"type":"urn:reprise:problem:key-expired","title":"The idempotency key is too old for its result to be known","status":410,` +
			`"detail":"the key is from \"May\" & <June>","code":"key-expired","retry":"reconcile","outcome":"unknown","reference":"/orders/1"}`
		if string(body) != want {
			t.Errorf("the document is\n%s\nand not\n%s", body, want)
		}
		if resp.StatusCode != 410 || resp.Header.Get("Content-Type") != "application/problem+json" || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("answered %d with %v", resp.StatusCode, resp.Header)
		}
	})

	t.Run("W1 takes nothing over from another body", func(t *testing.T) {
		t.Parallel()
		resp := write(wire.ProblemOf(reprise.ErrInProgress), http.Header{
			"Content-Encoding": {"gzip"}, "Content-Length": {"7"}, "Etag": {`"1"`}, "Last-Modified": {"x"}, "Content-Type": {"text/html"},
			wire.HeaderReplayed: {"true"}, wire.HeaderExpires: {"x"}, "Cache-Control": {"public"}, "X-Request-Id": {"7"},
		})
		got := slices.Sorted(maps.Keys(resp.Header))
		if want := []string{"Cache-Control", "Content-Type", "Retry-After", "X-Request-Id"}; !slices.Equal(got, want) {
			t.Errorf("fields are %v; want %v", got, want)
		}
	})

	t.Run("W2 401 has a challenge", func(t *testing.T) {
		t.Parallel()
		p := wire.ProblemOf(&reprise.Error{Code: reprise.CodeUnauthenticated})
		if got := write(p, nil).Header.Get("WWW-Authenticate"); got != "Bearer" {
			t.Errorf("the challenge is %q", got)
		}
		own := http.Header{"Www-Authenticate": {`Basic realm="shop"`}}
		if got := write(p, own).Header.Values("WWW-Authenticate"); !slices.Equal(got, own["Www-Authenticate"]) {
			t.Errorf("the server's own challenge became %q", got)
		}
	})

	t.Run("W3 Retry-After is in whole seconds, rounded up", func(t *testing.T) {
		t.Parallel()
		for wait, want := range map[time.Duration]string{
			0: "", -time.Second: "", 1: "1", 400 * time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", 1<<63 - 1: "9223372036",
		} {
			if got := write(wire.Problem{Status: 503, RetryAfter: wait}, nil).Header.Get("Retry-After"); got != want {
				t.Errorf("%v is written as %q; want %q", wait, got, want)
			}
		}
	})

	t.Run("W4 says processed=?0 exactly when that is proven and useful", func(t *testing.T) {
		t.Parallel()
		for _, row := range []struct {
			err  reprise.Error
			want string
		}{
			{reprise.Error{Code: reprise.CodeStoreUnavailable}, "processed=?0"},
			{reprise.Error{Code: reprise.CodeInternal, Outcome: reprise.NotProcessed}, "processed=?0"},
			{reprise.Error{Code: "payment-in-progress", Status: 409, Outcome: reprise.NotProcessed}, "processed=?0"},
			{reprise.Error{Code: reprise.CodeInternal}, ""},
			{reprise.Error{Code: reprise.CodeOutcomeUnknown}, ""},
			{reprise.Error{Code: reprise.CodeInProgress}, ""},
			{reprise.Error{Code: reprise.CodeKeyReused}, ""},
			{reprise.Error{Code: reprise.CodeInvalid}, ""},
			{reprise.Error{Code: "order-paid", Status: 409, Outcome: reprise.Rejected}, ""},
		} {
			if got := write(wire.ProblemOf(&row.err), nil).Header.Get(wire.HeaderRetryContext); got != row.want {
				t.Errorf("%v, %v: the field is %q; want %q", row.err.Code, row.err.Outcome, got, row.want)
			}
		}
	})
}

func TestDecision(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	wire.Decision(402, "declined", "the card was declined").Write(w)
	p, ok := wire.ReadProblem(w.Result(), w.Body.Bytes())
	if !ok || p.Status != 402 || p.Code != "declined" || p.Retry != wire.RetryNewKey || p.Outcome != reprise.Rejected || p.Title != "Payment Required" {
		t.Errorf("read %+v, %v", p, ok)
	}
}

func TestReadProblem(t *testing.T) {
	t.Parallel()

	t.Run("W1 is read as it was written", func(t *testing.T) {
		t.Parallel()
		text := rapid.String()
		rapid.Check(t, func(t *rapid.T) {
			p := wire.Problem{
				Type:  rapid.OneOf(text.Filter(func(s string) bool { return s != "" }), rapid.Just("about:blank")).Draw(t, "type"),
				Title: text.Draw(t, "title"), Status: rapid.IntRange(400, 599).Draw(t, "status"), Detail: text.Draw(t, "detail"),
				Code: reprise.Code(text.Filter(func(s string) bool { return s != "" }).Draw(t, "code")), Retry: text.Draw(t, "retry"),
				Outcome:   rapid.SampledFrom([]reprise.Outcome{reprise.Unknown, reprise.Succeeded, reprise.Rejected, reprise.NotProcessed}).Draw(t, "outcome"),
				Reference: text.Draw(t, "reference"), RetryAfter: time.Duration(rapid.IntRange(0, 1e6).Draw(t, "wait")) * time.Second,
			}
			w := httptest.NewRecorder()
			p.Write(w)
			got, ok := wire.ReadProblem(w.Result(), w.Body.Bytes())
			if !ok || got != p {
				t.Fatalf("%s is read as\n%+v, %v\nand was\n%+v", w.Body, got, ok, p)
			}
		})
	})

	t.Run("W1 bytes that are not UTF-8 are replaced", func(t *testing.T) {
		t.Parallel()
		w := httptest.NewRecorder()
		wire.Problem{Type: "t", Status: 400, Detail: "a\xffb", Code: "c\xff"}.Write(w)
		if p, ok := wire.ReadProblem(w.Result(), w.Body.Bytes()); !ok || p.Detail != "a\ufffdb" || p.Code != "c\ufffd" {
			t.Errorf("%s is read as %+v, %v", w.Body, p, ok)
		}
	})

	read := func(contentType, body string) (wire.Problem, bool) {
		resp := &http.Response{StatusCode: 409, Header: http.Header{"Content-Type": {contentType}}}
		return wire.ReadProblem(resp, []byte(body))
	}
	t.Run("W1 refuses what is no problem document", func(t *testing.T) {
		t.Parallel()
		for _, row := range [][2]string{
			{"application/json", `{"code":"in-progress"}`}, {"text/html", "<p>"}, {"", `{"code":"in-progress"}`},
			{"application/problem+json", ""}, {"application/problem+json", "null"}, {"application/problem+json", "[]"},
			{"application/problem+json", `{"code":`}, {"application/problem+json", `{"code":"a","code":"b"}`},
			{"application/problem+json", `{}{}`}, {"application/problem+xml", "<problem/>"}, {"application/problem+json;x", "{}"},
		} {
			if p, ok := read(row[0], row[1]); ok || p != (wire.Problem{}) {
				t.Errorf("%s %s is read as %+v, %v", row[0], row[1], p, ok)
			}
		}
	})
	t.Run("W1 the status is the response's own", func(t *testing.T) {
		t.Parallel()
		if p, ok := read("application/problem+json", `{"status":200,"code":"in-progress"}`); !ok || p.Status != 409 {
			t.Errorf("read %+v, %v", p, ok)
		}
	})
	t.Run("W1 members of a wrong type are ignored", func(t *testing.T) {
		t.Parallel()
		p, ok := read("Application/Problem+JSON; charset=utf-8", `{"type":7,"title":null,"detail":["x"],"code":{"a":1},"retry":true,"outcome":1,"reference":"/r","more":1}`)
		if want := (wire.Problem{Type: "about:blank", Status: 409, Reference: "/r"}); !ok || p != want {
			t.Errorf("read %+v, %v", p, ok)
		}
	})
	t.Run("W1 an outcome that is not known proves nothing", func(t *testing.T) {
		t.Parallel()
		for _, outcome := range []string{"", "done", "NOT-PROCESSED", "not processed"} {
			if p, ok := read("application/problem+json", `{"outcome":"`+outcome+`"}`); !ok || p.Outcome != reprise.Unknown {
				t.Errorf("%q is read as %v, %v", outcome, p.Outcome, ok)
			}
		}
	})
	t.Run("W1 a missing code is taken from the type", func(t *testing.T) {
		t.Parallel()
		if p, _ := read("application/problem+json", `{"type":"urn:reprise:problem:key-reused"}`); p.Code != reprise.CodeKeyReused {
			t.Errorf("the code is %q", p.Code)
		}
		if p, _ := read("application/problem+json", `{"type":"urn:reprise:problem:key-reused","code":"declined"}`); p.Code != "declined" {
			t.Errorf("the code is %q", p.Code)
		}
		if p, _ := read("application/problem+json", `{"type":"https://example.com/key-reused"}`); p.Code != "" {
			t.Errorf("the code is %q", p.Code)
		}
	})
}

func FuzzReadProblem(f *testing.F) {
	for _, row := range vectors[[]problemVector](f, "problems.json") {
		w := httptest.NewRecorder()
		p := wire.ProblemOf(&reprise.Error{Code: row.Code, Detail: "é\n", Reference: "/r"})
		p.Write(w)
		f.Add(row.Status, w.Header().Get("Content-Type"), w.Header().Get("Retry-After"), w.Body.Bytes())
	}
	f.Add(400, "application/problem+json", "", []byte(`{"type":1,"title":[],"code":null,"outcome":"succeeded"}`))
	f.Fuzz(func(t *testing.T, status int, contentType, retryAfter string, body []byte) {
		if status < 400 || status > 599 {
			return
		}
		resp := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}, "Retry-After": {retryAfter}}}
		p, ok := wire.ReadProblem(resp, body)
		if !ok {
			if p != (wire.Problem{}) {
				t.Fatalf("no problem document, and read as %+v", p)
			}
			return
		}
		if p.Status != status || p.Type == "" {
			t.Fatalf("read %+v", p)
		}
		w := httptest.NewRecorder()
		p.Write(w)
		again, ok := wire.ReadProblem(w.Result(), w.Body.Bytes())
		if _, date := strconv.Atoi(retryAfter); date != nil {
			again.RetryAfter, p.RetryAfter = 0, 0 // A second may have passed in between.
		}
		again.RetryAfter, p.RetryAfter = again.RetryAfter.Truncate(time.Second), p.RetryAfter.Truncate(time.Second)
		if p.Code == "" && again.Code != "" {
			t.Fatalf("a code came from nowhere: %+v", again)
		}
		if !ok || again != p {
			t.Fatalf("%s is read as\n%+v, %v\nand was\n%+v", w.Body, again, ok, p)
		}
	})
}

func ExampleProblemOf() {
	w := httptest.NewRecorder()
	wire.ProblemOf(&reprise.Error{Code: reprise.CodeInProgress}).Write(w)
	p, _ := wire.ReadProblem(w.Result(), w.Body.Bytes())
	fmt.Println(p.Status, p.Code, p.Retry, p.Outcome, p.RetryAfter)
	// Output: 409 in-progress same-key unknown 1s
}
