// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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
				err := <-ended
				if err == nil || !strings.Contains(err.Error(), "in flight") || exit.CodeOf(err) != exit.Failure {
					t.Errorf("ended with %v", err)
				}
				if e, ok := errors.AsType[*exit.Error](err); !ok || e.Hint == "" {
					t.Errorf("%v has no hint", err)
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

// TestRunWithSilentConnections ends a listener while somebody is connected who
// says nothing, or has not finished what they say.
func TestRunWithSilentConnections(t *testing.T) {
	t.Parallel()
	dial := func(t *testing.T, l *serve.Listener, says string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, says); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	// accepted waits until the listener knows of every connection made before.
	accepted := func(t *testing.T, l *serve.Listener) {
		t.Helper()
		conn := dial(t, l, "GET /quick HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	for name, drain := range map[string]time.Duration{"with a long drain": time.Minute, "with a short one": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Run(ctx, drain) }()
			silent := []net.Conn{dial(t, l, ""), dial(t, l, "POST /orders HTTP/1.1\r\nHost: ")}
			accepted(t, l)
			began := time.Now()
			stop()
			if err := <-ended; err != nil {
				t.Errorf("ended with %v, although no request was in flight", err)
			}
			if took := time.Since(began); took > 4*time.Second { // Shutdown itself takes 5 s.
				t.Errorf("waited %v for somebody who says nothing", took)
			}
			for _, conn := range silent {
				if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection is still open: %d, %v", n, err)
				}
			}
		})
	}
	t.Run("beside a request, which ends", func(t *testing.T) {
		t.Parallel()
		arrived, release := make(chan struct{}), make(chan struct{})
		l := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-release
			_, _ = io.WriteString(w, "done")
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx, time.Minute) }()
		silent := dial(t, l, "")
		slow := dial(t, l, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		<-arrived
		stop()
		// The silent one goes first: by then the grace is over.
		if n, err := silent.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d, %v", n, err)
		}
		close(release)
		if answer, err := io.ReadAll(slow); err != nil || !strings.HasSuffix(string(answer), "done") {
			t.Errorf("answered %q, %v", answer, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
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
