// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/serve"
)

func listen(t *testing.T, h http.Handler) *serve.Listener {
	t.Helper()
	l, err := serve.Listen(t.Context(), "test", "127.0.0.1:0", h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestListen(t *testing.T) {
	t.Parallel()
	l := listen(t, http.NotFoundHandler())
	defer func() { _ = l.Close() }()
	var out strings.Builder
	if err := l.Announce(&out); err != nil || out.String() != fmt.Sprintf("{\"listening\":%q,\"role\":\"test\"}\n", l.Addr()) {
		t.Errorf("announced %s, %v", &out, err)
	}
	for addr, want := range map[string]exit.Code{l.Addr(): exit.Environment, "nowhere": exit.Usage, "127.0.0.1:99999": exit.Usage} {
		if _, err := serve.Listen(t.Context(), "test", addr, nil, slog.New(slog.DiscardHandler)); exit.CodeOf(err) != want {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestRun ends a listener while a request is in flight.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		drain time.Duration
		cut   bool
	}{
		"waits for it":        {time.Minute, false},
		"cuts it off in time": {time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, release, drains := make(chan struct{}), make(chan struct{}), make(chan struct{})
			l := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(arrived)
				<-release
				_, _ = io.WriteString(w, "done")
			}))
			l.OnDrain(func() { close(drains) })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Run(ctx, row.drain) }()
			answered := make(chan string, 1)
			go func() {
				resp, err := http.Get(l.URL())
				if err != nil {
					answered <- ""
					return
				}
				defer func() { _ = resp.Body.Close() }()
				body, _ := io.ReadAll(resp.Body)
				answered <- string(body)
			}()
			<-arrived
			stop()
			<-drains
			if row.cut {
				if err := <-ended; err == nil || !strings.Contains(err.Error(), "in flight") {
					t.Errorf("ended with %v", err)
				}
				close(release)
				if body := <-answered; body != "" {
					t.Errorf("answered %q", body)
				}
				return
			}
			close(release)
			if err := <-ended; err != nil {
				t.Errorf("ended with %v", err)
			}
			if body := <-answered; body != "done" {
				t.Errorf("answered %q", body)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /a/{x}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("x")) })
	h := serve.Problems(mux)
	for request, want := range map[string]string{
		"POST /a/b":        "200 b",
		"POST /a/b%2Fc":    "200 b/c",
		"POST /a/..%2Fc":   "200 ../c",
		"GET /a/b":         "405 POST",
		"POST /a":          "404 ",
		"POST /a/":         "404 ",
		"POST /a//b":       "404 ",
		"POST /x/../a/b":   "404 ",
		"POST /a/b/c":      "404 ",
		"DELETE /anything": "404 ",
	} {
		method, target, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		got := fmt.Sprint(w.Code, " ")
		if w.Code == http.StatusOK {
			got += w.Body.String()
		} else {
			got += w.Header().Get("Allow")
			if w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %s", request, w.Body)
			}
		}
		if got != want {
			t.Errorf("%s: %s; want %s", request, got, want)
		}
	}
}
