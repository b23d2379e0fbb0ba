// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// roundTrip is a Base that is no *http.Transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// give makes one request and returns how the call ended.
func give(t *testing.T, c *http.Client, r *http.Request) (*http.Response, *retry.Error) {
	t.Helper()
	resp, err := c.Do(r)
	if err == nil {
		return resp, retryhttp.ErrorOf(resp)
	}
	e, ok := errors.AsType[*retry.Error](err)
	if !ok {
		t.Fatalf("%v is no *retry.Error", err)
	}
	if reprise.OutcomeOf(err) != e.Outcome {
		t.Errorf("OutcomeOf gives %v through http.Client, the error says %v", reprise.OutcomeOf(err), e.Outcome)
	}
	return nil, e
}

// TestNeverSent is about attempts that provably reached no server: any request
// is sent again, also a POST without a key (rule C1, CLI-09).
func TestNeverSent(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, e *retry.Error, attempts int, reason retry.Reason) {
		t.Helper()
		if e == nil {
			t.Fatal("the call succeeded")
		}
		if e.Outcome != reprise.NotProcessed || e.Reason != reason || len(e.Attempts) != attempts {
			t.Errorf("%v: outcome %v, reason %q, %d attempts; want not-processed, %q, %d", e, e.Outcome, e.Reason, len(e.Attempts), reason, attempts)
		}
		for _, a := range e.Attempts {
			if a.Sends != 0 || a.Status != 0 || a.Outcome != reprise.NotProcessed {
				t.Errorf("record %+v", a)
			}
		}
	}

	t.Run("C1 nobody listens", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		_, e := give(t, client(t, &retryhttp.Transport{}), request(t, "POST", "http://"+l.Addr().String(), "x"))
		check(t, e, 4, retry.ReasonAttempts)
		if !errors.Is(e, syscall.ECONNREFUSED) || e.Attempts[1].Trigger != "connect" {
			t.Errorf("%v, trigger %q", e, e.Attempts[1].Trigger)
		}
	})

	// TLS with a server that does not speak it gives a bare EOF, which looks like a
	// lost answer to whoever reads error texts.
	t.Run("C1 the other side hangs up in the handshake", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var hangups atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.ReadFull(c, make([]byte, 100))
				hangups.Add(1) // before the client can notice it
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		_, e := give(t, client(t, &retryhttp.Transport{}), request(t, "POST", "https://"+l.Addr().String(), "x"))
		check(t, e, 4, retry.ReasonAttempts)
		if hangups.Load() != 4 {
			t.Errorf("the fault fired %d times", hangups.Load())
		}
	})

	// hashicorp/go-retryablehttp#176: a certificate that does not hold was tried four times.
	t.Run("a certificate that does not hold is final", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.Config.ErrorLog = quiet
		srv.StartTLS()
		t.Cleanup(srv.Close)
		_, e := give(t, client(t, &retryhttp.Transport{}), request(t, "GET", srv.URL, ""))
		check(t, e, 1, retry.ReasonFinal)
	})

	t.Run("plain HTTP on an https port is final", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(srv.Close)
		_, e := give(t, client(t, &retryhttp.Transport{}), request(t, "GET", strings.Replace(srv.URL, "http:", "https:", 1), ""))
		check(t, e, 1, retry.ReasonFinal)
	})

	for _, row := range []struct {
		name     string
		dns      *net.DNSError
		attempts int
		reason   retry.Reason
	}{
		{"a name that does not exist is final", &net.DNSError{Err: "no such host", IsNotFound: true}, 1, retry.ReasonFinal},
		{"a resolver that fails is not", &net.DNSError{Err: "server misbehaving", IsTemporary: true}, 4, retry.ReasonAttempts},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: row.dns}
			}}
			_, e := give(t, client(t, &retryhttp.Transport{Base: base}), request(t, "POST", "http://shop.invalid/", "x"))
			check(t, e, row.attempts, row.reason)
		})
	}

	t.Run("a request that can't be sent is final", func(t *testing.T) {
		t.Parallel()
		rt := &retryhttp.Transport{}
		client(t, rt)
		r := request(t, "POST", "gopher://shop/", "x")
		_, err := rt.RoundTrip(r)
		e, _ := errors.AsType[*retry.Error](err)
		check(t, e, 1, retry.ReasonFinal)
		r = request(t, "POST", "http://shop/", "x")
		r.Header["Bad Name"] = []string{"x"}
		_, err = rt.RoundTrip(r)
		e, _ = errors.AsType[*retry.Error](err)
		check(t, e, 1, retry.ReasonFinal)
	})

	t.Run("C1 the attempt ended while it waited for a free connection", func(t *testing.T) {
		t.Parallel()
		release := make(chan struct{})
		srv := serve(t, func(x exchange) bool {
			if x.body == "slow" {
				<-release
			}
			return x.answer(200, "")
		})
		base := &http.Transport{MaxConnsPerHost: 1}
		t.Cleanup(base.CloseIdleConnections)
		rt := &retryhttp.Transport{Base: base}
		slow := make(chan error, 1)
		go func() {
			resp, err := base.RoundTrip(request(t, "POST", srv.url, "slow"))
			if err == nil {
				resp.Body.Close()
			}
			slow <- err
		}()
		for len(srv.seen()) == 0 {
			time.Sleep(time.Millisecond)
		}
		rt.Policy = policy(t, retry.Options{
			AttemptTimeout: 500 * time.Millisecond,
			OnAttempt: func(a reprise.Attempt) {
				if a.Number == 1 {
					close(release)
				}
			},
		})
		resp, e := give(t, client(t, rt), request(t, "POST", srv.url, "mine"))
		if resp == nil || e != nil {
			t.Fatal(e)
		}
		resp.Body.Close()
		if err := <-slow; err != nil {
			t.Fatal(err)
		}
		a := retryhttp.Attempts(resp)
		if len(a) != 2 || a[0].Outcome != reprise.NotProcessed || a[0].Sends != 0 || a[1].Trigger != "timeout" || len(srv.seen()) != 2 {
			t.Errorf("%+v, %d processed", a, len(srv.seen()))
		}
	})

	t.Run("a dead context sends nothing, and the body is closed", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool { return x.answer(200, "") })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rt := &retryhttp.Transport{}
		client(t, rt)
		for _, again := range []func() (io.ReadCloser, error){nil, func() (io.ReadCloser, error) { return http.NoBody, nil }} {
			body := &counted{Reader: strings.NewReader("x")}
			r, _ := http.NewRequestWithContext(ctx, "POST", srv.url, body)
			r.GetBody = again
			_, err := rt.RoundTrip(r)
			if !errors.Is(err, context.Canceled) || reprise.OutcomeOf(err) != reprise.NotProcessed {
				t.Errorf("%v, outcome %v", err, reprise.OutcomeOf(err))
			}
			if body.closed.Load() != 1 || len(srv.seen()) != 0 {
				t.Errorf("closed %d times, %d processed", body.closed.Load(), len(srv.seen()))
			}
		}
	})

	// net/http may come back from an attempt that was cancelled while another
	// goroutine of its own still writes the header.
	t.Run("C1 a connection without a header is proof, unless the attempt was cancelled", func(t *testing.T) {
		t.Parallel()
		for name, row := range map[string]struct {
			fail    func(*http.Request) error
			outcome reprise.Outcome
		}{
			"broken":    {func(*http.Request) error { return syscall.EPIPE }, reprise.NotProcessed},
			"cancelled": {func(r *http.Request) error { <-r.Context().Done(); return r.Context().Err() }, reprise.Unknown},
		} {
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(r.Context())
				trace.GetConn("shop:80")
				trace.GotConn(httptrace.GotConnInfo{Reused: true})
				return nil, row.fail(r)
			})
			p := policy(t, retry.Options{AttemptTimeout: 10 * time.Millisecond, MaxAttempts: 1})
			_, e := give(t, client(t, &retryhttp.Transport{Base: base, Policy: p}), request(t, "POST", "http://shop/", "x"))
			if e == nil || e.Outcome != row.outcome || e.Attempts[0].Sends != 0 || !e.Attempts[0].Reused {
				t.Errorf("%s: %v", name, e)
			}
		}
	})
}

// counted counts how often it is closed.
type counted struct {
	io.Reader
	closed atomic.Int32
}

func (c *counted) Close() error { c.closed.Add(1); return nil }

// TestInDoubt is about attempts whose request was sent and whose answer did not
// come to its end. Whether the server acted can't be known (rule C1).
func TestInDoubt(t *testing.T) {
	t.Parallel()
	faults := map[string]func(x exchange) bool{
		"HTTP-01 reset after processing":      exchange.reset,
		"HTTP-02 hang-up after processing":    func(exchange) bool { return false },
		"HTTP-04 header and then nothing":     func(x exchange) bool { return x.raw("HTTP/1.1 201 Created\nContent-Length: 5\n\n") },
		"HTTP-04 length cut short":            func(x exchange) bool { return x.raw("HTTP/1.1 201 Created\nContent-Length: 5\n\nabc") },
		"HTTP-04 length cut short by a reset": func(x exchange) bool { x.raw("HTTP/1.1 201 Created\nContent-Length: 5\n\nabc"); return x.reset() },
		"HTTP-04 chunks without an end":       func(x exchange) bool { return x.raw("HTTP/1.1 201 Created\nTransfer-Encoding: chunked\n\n3\nabc\n") },
		"HTTP-04 half a header":               func(x exchange) bool { return x.raw("HTTP/1.1 201 Crea") },
		"HTTP-04 half a refusal":              func(x exchange) bool { return x.raw("HTTP/1.1 402 Payment Required\nContent-Length: 5\n\nabc") },
		"HTTP-06 silence":                     exchange.hang,
		"HTTP-08 500":                         func(x exchange) bool { return x.answer(500, "") },
		"HTTP-09 an early hint, then a reset": func(x exchange) bool { x.raw("HTTP/1.1 103 Early Hints\nLink: </a>\n\n"); return x.reset() },
		"no HTTP at all":                      func(x exchange) bool { return x.raw("SSH-2.0-OpenSSH\n") },
		"no HTTP that mentions a refusal": func(x exchange) bool {
			return x.raw("stream error: stream ID 1; REFUSED_STREAM\n")
		},
	}
	for name, fault := range faults {
		setup := func(t *testing.T, rt *retryhttp.Transport) (*server, *http.Client) {
			rt.Policy = policy(t, retry.Options{AttemptTimeout: time.Second})
			srv := serve(t, func(x exchange) bool {
				if x.n == 1 {
					return fault(x)
				}
				return x.answer(201, "done")
			})
			return srv, client(t, rt)
		}

		t.Run(name+", unsafe: once, and unknown", func(t *testing.T) {
			t.Parallel()
			srv, c := setup(t, &retryhttp.Transport{})
			resp, e := give(t, c, request(t, "POST", srv.url, "order"))
			if resp != nil {
				resp.Body.Close()
			}
			if e == nil || e.Outcome != reprise.Unknown || e.Reason != retry.ReasonInDoubt || !errors.Is(e, reprise.ErrOutcomeUnknown) {
				t.Fatalf("the call says %v, want it in doubt", e)
			}
			if n := len(srv.seen()); n != 1 || e.Attempts[0].Sends != 1 {
				t.Errorf("processed %d times, record %+v", n, e.Attempts[0])
			}
			if resp != nil && resp.StatusCode < 300 {
				t.Errorf("half an answer was handed over as %s", resp.Status)
			}
		})

		t.Run(name+", keyed: sent again under the same key", func(t *testing.T) {
			t.Parallel()
			srv, c := setup(t, &retryhttp.Transport{Ledger: true})
			resp, e := give(t, c, request(t, "POST", srv.url, "order"))
			if e != nil {
				t.Fatal(e)
			}
			if body := read(t, resp); body != "done" {
				t.Errorf("answer %q", body)
			}
			in, a := srv.seen(), retryhttp.Attempts(resp)
			if len(in) != 2 || len(a) != 2 || a[0].Outcome != reprise.Unknown || a[1].Outcome != reprise.Succeeded {
				t.Fatalf("processed %d times, records %+v", len(in), a)
			}
			if k := in[0].header.Get("Idempotency-Key"); k == "" || k != in[1].header.Get("Idempotency-Key") || k != `"`+string(a[0].Key)+`"` {
				t.Errorf("keys %q and %q, record %q", k, in[1].header.Get("Idempotency-Key"), a[0].Key)
			}
			if in[0].body != "order" || in[1].body != "order" {
				t.Errorf("contents %q and %q", in[0].body, in[1].body)
			}
			if got := in[1].header.Get("Retry-Context"); got != "attempt=2, max=4" {
				t.Errorf("the second attempt says %q of itself", got)
			}
		})
	}

	t.Run("C2 lost, then refused: unknown", func(t *testing.T) {
		t.Parallel()
		var listener atomic.Pointer[net.Listener]
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listener.Store(&l)
		var processed atomic.Int32
		srv := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			processed.Add(1)
			l.Close()
			panic(http.ErrAbortHandler)
		})}
		done := make(chan struct{})
		go func() { defer close(done); srv.Serve(l) }()
		t.Cleanup(func() { srv.Close(); <-done })
		_, e := give(t, client(t, &retryhttp.Transport{Ledger: true}), request(t, "POST", "http://"+l.Addr().String(), "x"))
		if e == nil || e.Outcome != reprise.Unknown || !errors.Is(e, syscall.ECONNREFUSED) || !errors.Is(e, reprise.ErrOutcomeUnknown) {
			t.Errorf("%v", e)
		}
		if processed.Load() != 1 || len(e.Attempts) != 4 || e.Attempts[3].Outcome != reprise.NotProcessed {
			t.Errorf("processed %d, records %+v", processed.Load(), e.Attempts)
		}
	})

	t.Run("C2 lost, then decided: only a ledger's answer speaks of both attempts", func(t *testing.T) {
		t.Parallel()
		for name, row := range map[string]struct {
			fields  []string
			outcome reprise.Outcome
		}{
			"stored":     {[]string{"Idempotency-Expires: Sat, 01 Jan 2028 00:00:00 GMT"}, reprise.Rejected},
			"replayed":   {[]string{"Idempotent-Replayed: true"}, reprise.Rejected},
			"not marked": {nil, reprise.Unknown}, // Such as 401, because the token has expired since.
		} {
			srv := serve(t, func(x exchange) bool {
				if x.n == 1 {
					return x.reset()
				}
				return x.answer(402, "declined", row.fields...)
			})
			resp, e := give(t, client(t, &retryhttp.Transport{Ledger: true}), request(t, "POST", srv.url, "x"))
			if e == nil || e.Outcome != row.outcome || len(srv.seen()) != 2 || read(t, resp) != "declined" {
				t.Errorf("%s: %v, processed %d times", name, e, len(srv.seen()))
			}
		}
	})

	t.Run("C1 a Base without httptrace proves nothing", func(t *testing.T) {
		t.Parallel()
		calls := 0
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			calls++
			return nil, syscall.ECONNREFUSED // Perhaps of its second attempt.
		})
		_, e := give(t, client(t, &retryhttp.Transport{Base: base}), request(t, "POST", "http://shop/", "x"))
		if e == nil || e.Outcome != reprise.Unknown || calls != 1 || e.Attempts[0].Sends != 1 {
			t.Errorf("%v after %d calls", e, calls)
		}
	})

	t.Run("a Base that returns nothing is an error", func(t *testing.T) {
		t.Parallel()
		base := roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil })
		if _, e := give(t, client(t, &retryhttp.Transport{Base: base}), request(t, "POST", "http://shop/", "x")); e == nil || e.Outcome != reprise.Unknown {
			t.Errorf("%v", e)
		}
	})
}

// TestHiddenResend is about net/http, which sends a request again by itself when
// a connection that was used before breaks, if it has an idempotency key and no
// content or a GetBody (rule C3, HTTP-18).
func TestHiddenResend(t *testing.T) {
	t.Parallel()
	// Each request but the warming one is processed and left without an answer.
	setup := func(t *testing.T) *server {
		return serve(t, func(x exchange) bool {
			return x.body == "warm" && x.answer(200, "")
		})
	}
	warm := func(t *testing.T, rt http.RoundTripper, url string) {
		resp, err := rt.RoundTrip(request(t, "POST", url, "warm"))
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
	}
	const key = "Idempotency-Key: k"

	for _, body := range []string{"order", ""} {
		t.Run("net/http alone processes twice, with content "+body, func(t *testing.T) {
			t.Parallel()
			srv := setup(t)
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			warm(t, base, srv.url)
			_, err := base.RoundTrip(request(t, "POST", srv.url, body, key))
			if n := len(srv.seen()) - 1; err == nil || n != 2 {
				t.Errorf("processed %d times, %v: the fault does not fire any more", n, err)
			}
		})

		for _, field := range []string{key, "X-Idempotency-Key: k"} {
			t.Run("C3 once, with "+field+" and content "+body, func(t *testing.T) {
				t.Parallel()
				srv := setup(t)
				rt := &retryhttp.Transport{}
				c := client(t, rt)
				warm(t, rt.Base, srv.url)
				_, e := give(t, c, request(t, "POST", srv.url, body, field))
				in := srv.seen()[1:]
				if e == nil || len(in) != 1 || in[0].conn != 1 {
					t.Fatalf("%v, processed %d times", e, len(in))
				}
				name, value, _ := strings.Cut(field, ": ")
				if in[0].header.Get(name) != value {
					t.Errorf("the key was lost: %v", in[0].header)
				}
				if in[0].length != int64(len(body)) {
					t.Errorf("Content-Length %d, want %d", in[0].length, len(body))
				}
				if a := e.Attempts[0]; a.Sends != 1 || !a.Reused || e.Outcome != reprise.Unknown {
					t.Errorf("record %+v", a)
				}
			})
		}
	}

	t.Run("C3 with a ledger each attempt is one sending", func(t *testing.T) {
		t.Parallel()
		srv := setup(t)
		rt := &retryhttp.Transport{Ledger: true}
		c := client(t, rt)
		warm(t, rt.Base, srv.url)
		_, e := give(t, c, request(t, "POST", srv.url, ""))
		if n := len(srv.seen()) - 1; e == nil || n != 4 || len(e.Attempts) != 4 {
			t.Errorf("processed %d times: %v", n, e)
		}
	})

	t.Run("C9 what can't be prevented is counted", func(t *testing.T) {
		t.Parallel()
		srv := setup(t)
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		// Something between us and net/http, which may want to see the key.
		var saw string
		rt := &retryhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			saw = r.Header.Get("Idempotency-Key")
			return base.RoundTrip(r)
		})}
		c := client(t, rt)
		warm(t, base, srv.url)
		_, e := give(t, c, request(t, "POST", srv.url, "", key))
		if n := len(srv.seen()) - 1; e == nil || n != 2 || len(e.Attempts) != 1 || e.Attempts[0].Sends != 2 || saw != "k" {
			t.Errorf("processed %d times, key %q: %+v", n, saw, e)
		}
	})

	t.Run("the answer shows the request with its key", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool { return x.answer(201, "") })
		resp, e := give(t, client(t, &retryhttp.Transport{}), request(t, "POST", srv.url, "", key))
		if e != nil {
			t.Fatal(e)
		}
		resp.Body.Close()
		if got := resp.Request.Header.Get("Idempotency-Key"); got != "k" || len(retryhttp.Attempts(resp)) != 1 {
			t.Errorf("key %q in the answer's request", got)
		}
	})
}
