// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// TestAnswer is about the bodies of answers: which are read before they are
// believed, and what becomes of the others.
func TestAnswer(t *testing.T) {
	t.Parallel()
	handle := func(t *testing.T, h http.HandlerFunc) string {
		srv := httptest.NewUnstartedServer(h)
		srv.Config.ErrorLog = quiet
		srv.Start()
		t.Cleanup(srv.Close)
		return srv.URL
	}

	t.Run("HTTP-04 an answer of a safe request that broke off is asked for again", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			if x.n == 1 {
				return x.raw("HTTP/1.1 200 OK\nContent-Length: 8\n\nhalf")
			}
			return x.answer(200, "complete")
		})
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "GET", srv.url, ""))
		if e != nil || read(t, resp) != "complete" {
			t.Fatal(e)
		}
		a := retryhttp.Attempts(resp)
		if len(a) != 2 || a[0].Outcome != reprise.Unknown || a[0].Status != 200 || a[1].Trigger != "truncated" {
			t.Errorf("%+v", a)
		}
	})

	// Azure/azure-sdk-for-go#7542: the effect is certain, the answer is lost; both are said.
	t.Run("HTTP-04 half a success is an error that shows what came", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			return x.raw("HTTP/1.1 201 Created\nLocation: /orders/1\nContent-Length: 8\n\nhalf")
		})
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "POST", srv.url, "x"))
		if resp != nil || e == nil {
			t.Fatal("half an answer was handed over")
		}
		s, ok := errors.AsType[*retryhttp.StatusError](e)
		if !ok || s.Status != 201 || s.Header.Get("Location") != "/orders/1" || string(s.Body) != "half" ||
			!errors.Is(e, io.ErrUnexpectedEOF) || e.Outcome != reprise.Unknown {
			t.Errorf("%v: %+v", e, s)
		}
	})

	t.Run("a stream that breaks off fails in the reader's hands", func(t *testing.T) {
		t.Parallel()
		for name, answer := range map[string]string{
			"longer than MaxBuffer": "HTTP/1.1 200 OK\nContent-Length: 100\n\n" + strings.Repeat("x", 50),
			"of unknown length":     "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n",
		} {
			srv := serve(t, func(x exchange) bool { return x.raw(answer) })
			resp, e := give(t, client(t, &retryhttp.Transport{MaxBuffer: 99}), request(t, "GET", srv.url, ""))
			if e != nil {
				t.Fatal(e)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || len(b) == 0 {
				t.Errorf("%s: %d bytes, then %v", name, len(b), err)
			}
		}
	})

	t.Run("an answer of any size arrives byte for byte", func(t *testing.T) {
		t.Parallel()
		for _, size := range []int{0, 1, 9, 10, 11, 511, 512, 513, 64<<10 - 1, 64 << 10, 64<<10 + 1, 300 << 10, 2 << 20} {
			for _, status := range []int{200, 404} {
				want := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
				for _, known := range []bool{true, false} {
					url := handle(t, func(w http.ResponseWriter, _ *http.Request) {
						if known {
							w.Header().Set("Content-Length", fmt.Sprint(size))
						}
						w.WriteHeader(status)
						w.(http.Flusher).Flush()
						w.Write(want)
					})
					for _, method := range []string{"GET", "POST"} {
						for _, most := range []int64{0, 10, -1} {
							resp, err := client(t, &retryhttp.Transport{MaxBuffer: most}).Do(request(t, method, url, ""))
							if err != nil {
								t.Fatal(err)
							}
							if got := read(t, resp); got != string(want) || (resp.ContentLength >= 0) != known && size > 0 {
								t.Errorf("%s, %d bytes, known %v, MaxBuffer %d: got %d bytes, Content-Length %d", method, size, known, most, len(got), resp.ContentLength)
							}
						}
					}
				}
			}
		}
	})

	t.Run("a compressed answer is read like any other", func(t *testing.T) {
		t.Parallel()
		want := strings.Repeat("again ", 1000)
		var whole bytes.Buffer
		z := gzip.NewWriter(&whole)
		io.WriteString(z, want)
		z.Close()
		srv := serve(t, func(x exchange) bool {
			if x.n == 1 {
				x.answer(201, whole.String()[:whole.Len()-8], "Content-Encoding: gzip")
				return false
			}
			return x.answer(201, whole.String(), "Content-Encoding: gzip")
		})
		resp, e := give(t, client(t, &retryhttp.Transport{Ledger: true}), request(t, "POST", srv.url, "x"))
		if e != nil {
			t.Fatal(e)
		}
		if got := read(t, resp); got != want || len(srv.seen()) != 2 {
			t.Errorf("%d bytes after %d requests", len(got), len(srv.seen()))
		}
	})

	t.Run("HEAD has a length and no body", func(t *testing.T) {
		t.Parallel()
		url := handle(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000") })
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "HEAD", url, ""))
		if e != nil || read(t, resp) != "" || resp.ContentLength != 1000 {
			t.Errorf("%v, %+v", e, resp)
		}
	})

	t.Run("events are handed over as they come", func(t *testing.T) {
		t.Parallel()
		url := handle(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		for _, method := range []string{"GET", "POST"} {
			resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, method, url, ""))
			if e != nil {
				t.Fatal(e)
			}
			line, err := bufio.NewReader(resp.Body).ReadString('\n')
			if line != "data: 1\n" || err != nil {
				t.Errorf("%q, %v", line, err)
			}
			resp.Body.Close()
		}
	})

	// failsafe-go#123, go-resty/resty#1197: the attempt's context was cancelled before the body was read.
	t.Run("AttemptTimeout and Deadline don't cut a body that was handed over", func(t *testing.T) {
		t.Parallel()
		url := handle(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				io.WriteString(w, "slow ")
				w.(http.Flusher).Flush()
				time.Sleep(60 * time.Millisecond)
			}
		})
		c := client(t, &retryhttp.Transport{Policy: policy(t, retry.Options{AttemptTimeout: 500 * time.Millisecond, Deadline: 500 * time.Millisecond})})
		resp, e := give(t, c, request(t, "GET", url, ""))
		if e != nil {
			t.Fatal(e)
		}
		if got := read(t, resp); got != strings.Repeat("slow ", 10) {
			t.Errorf("got %q", got)
		}
	})

	t.Run("HTTP-05 an answer that drips past AttemptTimeout is in doubt", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			if x.n > 1 {
				return x.answer(201, "done")
			}
			io.WriteString(x.conn, "HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n")
			for {
				if _, err := io.WriteString(x.conn, "."); err != nil {
					return false
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		c := client(t, &retryhttp.Transport{Ledger: true, Policy: policy(t, retry.Options{AttemptTimeout: 500 * time.Millisecond})})
		resp, e := give(t, c, request(t, "POST", srv.url, "x"))
		if e != nil || read(t, resp) != "done" {
			t.Fatal(e)
		}
		a := retryhttp.Attempts(resp)
		if len(a) != 2 || a[0].Outcome != reprise.Unknown || !errors.Is(a[0].Err, context.DeadlineExceeded) || len(srv.seen()) != 2 {
			t.Errorf("%+v", a)
		}
	})

	t.Run("CLI-04 cancelling ends the reading of a body at once", func(t *testing.T) {
		t.Parallel()
		url := handle(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "GET", url, "").WithContext(ctx))
		if e != nil {
			t.Fatal(e)
		}
		defer resp.Body.Close()
		io.ReadFull(resp.Body, make([]byte, 5))
		cancel()
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("reading gives %v", err)
		}
	})

	t.Run("a connection that switches protocols can be written to", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			io.WriteString(x.conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
			io.CopyN(x.conn, x.conn, 4)
			return false
		})
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "GET", srv.url, "", "Upgrade: echo", "Connection: Upgrade"))
		if e != nil {
			t.Fatal(e)
		}
		rw, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("the body is a %T", resp.Body)
		}
		io.WriteString(rw, "ping")
		if b, err := io.ReadAll(rw); string(b) != "ping" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		rw.Close()
	})

	// openai/openai-go#495: answers that were given up kept their connections.
	t.Run("50 calls that are each answered 503 first use one connection", func(t *testing.T) {
		t.Parallel()
		for _, size := range []int{0, 100, 64 << 10, 96 << 10} {
			for _, most := range []int64{0, -1} { // Read ahead, and as a stream that is drained.
				srv := serve(t, func(x exchange) bool {
					if x.n%2 == 1 {
						return x.answer(503, strings.Repeat("x", size))
					}
					return x.answer(200, "ok")
				})
				c := client(t, &retryhttp.Transport{MaxBuffer: most})
				for range 50 {
					resp, e := give(t, c, request(t, "GET", srv.url, ""))
					if e != nil || read(t, resp) != "ok" {
						t.Fatal(e)
					}
				}
				if all, open := srv.connections(); all != 1 || open != 1 || len(srv.seen()) != 100 {
					t.Errorf("%d bytes, MaxBuffer %d: %d connections, %d open, %d requests", size, most, all, open, len(srv.seen()))
				}
			}
		}
	})

	t.Run("an answer without end does not hold up the next attempt", func(t *testing.T) {
		t.Parallel()
		var ended atomic.Int32
		url := handle(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Retry-Context") != "" {
				io.WriteString(w, "ok")
				return
			}
			w.WriteHeader(503)
			for b := bytes.Repeat([]byte("x"), 1<<10); r.Context().Err() == nil; {
				w.Write(b)
				w.(http.Flusher).Flush()
			}
			ended.Add(1)
		})
		start := time.Now()
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "GET", url, ""))
		if e != nil || read(t, resp) != "ok" {
			t.Fatal(e)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		until(t, func() bool { return ended.Load() == 1 })
	})

	t.Run("C9 records are found through a client with a time-out of its own", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool { return x.answer(200, "ok") })
		c := client(t, &retryhttp.Transport{})
		c.Timeout = 10 * time.Second
		resp, e := give(t, c, request(t, "GET", srv.url, ""))
		if e != nil || read(t, resp) != "ok" {
			t.Fatal(e)
		}
		if a := retryhttp.Attempts(resp); len(a) != 1 || a[0].Status != 200 || a[0].Trigger != "first" || a[0].Remaining <= 0 {
			t.Errorf("%+v", a)
		}
	})

	t.Run("answers of others have no records", func(t *testing.T) {
		t.Parallel()
		for _, resp := range []*http.Response{nil, {}, {Request: httptest.NewRequest("GET", "/", nil)}} {
			if retryhttp.Attempts(resp) != nil || retryhttp.ErrorOf(resp) != nil {
				t.Errorf("%+v has records", resp)
			}
		}
	})
}
