// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// call is one request.
type call struct {
	method, path, caller, key, body string
	header                          http.Header
	ctx                             context.Context // nil is the background
}

// post is a keyed POST /orders of ann.
func post(key, body string) call {
	return call{method: "POST", path: "/orders", caller: "ann", key: key, body: body}
}

func (c call) to(path string) call    { c.path = path; return c }
func (c call) by(caller string) call  { c.caller = caller; return c }
func (c call) via(method string) call { c.method = method; return c }
func (c call) with(kv ...string) call {
	c.header = c.header.Clone()
	if c.header == nil {
		c.header = make(http.Header)
	}
	for i := 0; i < len(kv); i += 2 {
		c.header[http.CanonicalHeaderKey(kv[i])] = append(c.header[http.CanonicalHeaderKey(kv[i])], kv[i+1])
	}
	return c
}

func (s *shop) send(c call) answer {
	s.t.Helper()
	a, err := s.try(c)
	check(s.t, err)
	return a
}

// async sends c from another goroutine.
func (s *shop) async(c call) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		a, err := s.try(c)
		if err != nil {
			s.t.Error(err)
		}
		answers <- a
	}()
	return answers
}

// eventually polls until ok, for what can't be waited for otherwise.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting until " + what)
		}
	}
}

func (s *shop) try(c call) (answer, error) {
	ctx := c.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	req, err := http.NewRequestWithContext(ctx, c.method, s.http.URL+c.path, strings.NewReader(c.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, c.header)
	if c.caller != "" {
		req.Header.Set("Authorization", "Bearer dev-"+c.caller)
	}
	if c.key != "" {
		req.Header.Set(wire.HeaderKey, c.key)
	}
	resp, err := s.http.Client().Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

// want checks status and, for a problem, its code.
func (a answer) want(t testing.TB, status int, code reprise.Code) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	p, ok := wire.ReadProblem(&http.Response{StatusCode: a.status, Header: a.header}, []byte(a.body))
	if code == "" && !ok {
		return
	}
	if p.Code != code {
		t.Fatalf("code %q, want %q: %s", p.Code, code, a.body)
	}
}

func (a answer) wantReplay(t testing.TB, want bool) {
	t.Helper()
	if got := a.header.Get(wire.HeaderReplayed); got != map[bool]string{true: "true"}[want] {
		t.Errorf("%s is %q, want replay %v", wire.HeaderReplayed, got, want)
	}
}

// wantSame checks that a repeat is answered like the first time: every field but
// the marker and the date of sending.
func (a answer) wantSame(t testing.TB, first answer) {
	t.Helper()
	if a.status != first.status || a.body != first.body {
		t.Errorf("got %d %q\nwant %d %q", a.status, a.body, first.status, first.body)
	}
	strip := func(h http.Header) string {
		h = h.Clone()
		h.Del(wire.HeaderReplayed)
		h.Del("Date")
		var b bytes.Buffer
		_ = h.Write(&b)
		return b.String()
	}
	if got, want := strip(a.header), strip(first.header); got != want {
		t.Errorf("got header\n%swant\n%s", got, want)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newKey returns a fresh key as a string.
func newKey() string { return string(reprise.NewKey()) }

// logBuffer is a log that tests may read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
