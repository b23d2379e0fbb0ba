// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/torture/proxy"
)

const order = `{"id":"ord_1","amount":1200}`

// bundle is a server that counts what it executed, behind a proxy.
type bundle struct {
	proxy    *proxy.Proxy
	executed atomic.Int64
	client   *http.Client
}

func setup(t *testing.T, plan proxy.Plan) *bundle {
	t.Helper()
	b := &bundle{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		b.executed.Add(1)
		w.Header().Set("Location", "/orders/ord_1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, order)
	}))
	t.Cleanup(upstream.Close)
	p, err := proxy.Listen(t.Context(), "127.0.0.1:0", upstream.Listener.Addr().String(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	b.proxy = p
	return b
}

// post sends one order; body and err are what the client saw.
func (b *bundle) post(ctx context.Context, key string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.proxy.Addr()+"/orders", strings.NewReader(`{"ref":"r"}`))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Idempotency-Key", key)
	req.GetBody = nil // so that net/http does not resend by itself
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

func TestFaults(t *testing.T) {
	t.Parallel()
	reset := func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
	eof := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
	none := func(err error) bool { return err == nil }
	rows := []struct {
		fault    proxy.Fault
		executed int64
		status   int
		body     string
		err      func(error) bool
	}{
		{proxy.Fault{}, 1, 201, order, none},
		{proxy.Fault{Kind: proxy.DropBefore}, 0, 0, "", reset},
		{proxy.Fault{Kind: proxy.CommitThenReset}, 1, 0, "", reset},
		{proxy.Fault{Kind: proxy.CommitThenClose}, 1, 0, "", eof},
		{proxy.Fault{Kind: proxy.Truncate}, 1, 201, order[:len(order)/2], eof},
		{proxy.Fault{Kind: proxy.SwapStatus, Status: 504}, 1, 504, "504 Gateway Timeout\n", none},
		{proxy.Fault{Kind: proxy.Answer, Status: 503, RetryAfter: time.Second}, 0, 503, "503 Service Unavailable\n", none},
		{proxy.Fault{Kind: proxy.Duplicate, Copies: 3}, 3, 201, order, none},
	}
	for _, row := range rows {
		t.Run(string(row.fault.Kind), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(proxy.Request) proxy.Fault { return row.fault })
			status, body, err := b.post(t.Context(), "k")
			if !row.err(err) {
				t.Errorf("the client saw error %v", err)
			}
			if status != row.status || body != row.body {
				t.Errorf("the client saw %d %q, want %d %q", status, body, row.status, row.body)
			}
			if got := b.executed.Load(); got != row.executed {
				t.Errorf("the server executed %d times, want %d", got, row.executed)
			}
			if fired := b.proxy.Fired()[row.fault.Kind]; row.fault.Kind != "" && fired != 1 {
				t.Errorf("the fault fired %d times, want 1", fired)
			}
		})
	}
}

func TestHangAnswersNothing(t *testing.T) {
	t.Parallel()
	committed := make(chan int, 1)
	b := setup(t, func(proxy.Request) proxy.Fault {
		return proxy.Fault{Kind: proxy.Hang, Upstream: func(status int) { committed <- status }}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-committed
		cancel()
	}()
	if _, _, err := b.post(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("the client saw %v, want its own cancellation", err)
	}
	if got := b.executed.Load(); got != 1 {
		t.Errorf("the server executed %d times, want 1", got)
	}
	if b.proxy.Fired()[proxy.Hang] != 1 {
		t.Error("the fault did not fire")
	}
}

// The request that the client gave up on arrives after its repeat was answered.
func TestLateArrivesAfterTheRepeat(t *testing.T) {
	t.Parallel()
	release, done := make(chan struct{}), make(chan struct{})
	b := setup(t, func(r proxy.Request) proxy.Fault {
		if r.Seen > 0 {
			return proxy.Fault{}
		}
		return proxy.Fault{Kind: proxy.Late, Release: release, Upstream: func(int) { close(done) }}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := b.post(ctx, "k"); err == nil {
		t.Fatal("the held request was answered")
	}
	if status, _, err := b.post(t.Context(), "k"); status != 201 || err != nil {
		t.Fatalf("the repeat got %d, %v", status, err)
	}
	if got := b.executed.Load(); got != 1 {
		t.Fatalf("before the release the server executed %d times, want 1", got)
	}
	close(release)
	<-done
	if got := b.executed.Load(); got != 2 {
		t.Errorf("after the release the server executed %d times, want 2", got)
	}
}

// A fault whose upstream never answered must not count as fired.
func TestFaultWithoutUpstreamDoesNotFire(t *testing.T) {
	t.Parallel()
	b := setup(t, func(proxy.Request) proxy.Fault { return proxy.Fault{Kind: proxy.CommitThenReset} })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.proxy.SetUpstream(closed.Addr().String())
	_ = closed.Close()
	if _, _, err := b.post(t.Context(), "k"); err == nil {
		t.Error("the client got an answer from a dead upstream")
	}
	if n := b.proxy.Fired()[proxy.CommitThenReset]; n != 0 {
		t.Errorf("the fault is counted %d times, want 0", n)
	}
}

// Keep-alive on the client's side must not turn into resent requests upstream.
func TestOneForwardPerRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	for range 20 {
		if status, body, err := b.post(t.Context(), "k"); status != 201 || body != order || err != nil {
			t.Fatalf("got %d %q %v", status, body, err)
		}
	}
	if in, out, ran := b.proxy.Requests(), b.proxy.Forwarded(), b.executed.Load(); in != 20 || out != 20 || ran != 20 {
		t.Errorf("arrived %d, forwarded %d, executed %d; want 20 of each", in, out, ran)
	}
}
