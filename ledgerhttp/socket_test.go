// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// conn is a client that speaks for itself.
type conn struct {
	*net.TCPConn
	t *testing.T
	r *bufio.Reader
}

func (s *shop) dial(t *testing.T) *conn {
	t.Helper()
	c, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	check(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return &conn{c.(*net.TCPConn), t, bufio.NewReader(c)}
}

func (c *conn) write(text string) {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	check(c.t, err)
}

// reset closes the connection as a crash would, without a farewell.
func (c *conn) reset() {
	c.t.Helper()
	check(c.t, c.SetLinger(0))
	check(c.t, c.Close())
}

func (c *conn) response() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	check(c.t, err)
	body, err := io.ReadAll(resp.Body)
	check(c.t, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// raw sends text and reads one response.
func (s *shop) raw(t *testing.T, text string) answer {
	t.Helper()
	c := s.dial(t)
	c.write(text)
	return c.response()
}

// head is the beginning of a keyed POST /orders of ann.
func head(key string, fields ...string) string {
	return "POST /orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer dev-ann\r\nContent-Type: application/json\r\n" +
		"Idempotency-Key: " + key + "\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

func withLength(n int) string { return fmt.Sprintf("Content-Length: %d", n) }

func TestBody(t *testing.T) {
	t.Parallel()

	t.Run("a body over the limit is 413, announced or not", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		key := newKey()
		big := `{"ref":"` + strings.Repeat("r", 10<<20) + `"}`
		s.send(post(key, big)).want(t, 413, reprise.CodeTooLarge)
		chunked := post(key, "")
		req, err := http.NewRequest("POST", s.http.URL+"/orders", io.MultiReader(strings.NewReader(big)))
		check(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer dev-ann")
		req.Header.Set("Idempotency-Key", key)
		resp, err := s.http.Client().Do(req)
		check(t, err)
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("chunked: status %d, want 413", resp.StatusCode)
		}
		chunked.body = orderBody
		s.send(chunked).want(t, 201, "")
		s.wantRows("r", 1)
	})
	t.Run("the limit itself is accepted, one byte more is not", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.server.MaxRequestBody = int64(len(orderBody)) })
		s.send(post(newKey(), orderBody)).want(t, 201, "")
		s.send(post(newKey(), orderBody+" ")).want(t, 413, reprise.CodeTooLarge)
	})
	t.Run("a truncated body is 400, and nothing is kept", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		for name, text := range map[string]string{
			"by length": head("k1", withLength(len(orderBody)+1)) + orderBody,
			"by chunks": head("k2", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(orderBody), orderBody),
		} {
			c := s.dial(t)
			c.write(text)
			check(t, c.CloseWrite())
			a := c.response()
			if a.status != 400 || !strings.Contains(a.body, `"code":"invalid"`) {
				t.Errorf("%s: got %d %s", name, a.status, a.body)
			}
		}
		s.wantRows("r", 0)
		s.send(post("k1", orderBody)).want(t, 201, "")
		s.send(post("k2", orderBody)).want(t, 201, "")
		s.wantRows("r", 2)
	})
	t.Run("malformed chunks are 400, and nothing is kept", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		a := s.raw(t, head("k", "Transfer-Encoding: chunked")+"zz\r\n{}\r\n0\r\n\r\n")
		if a.status != 400 {
			t.Errorf("got %d %s", a.status, a.body)
		}
		s.wantRows("r", 0)
	})
	t.Run("chunked and plain are one request", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		chunked := func(body string) string {
			return head("k", "Transfer-Encoding: chunked") +
				fmt.Sprintf("5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", body[:5], len(body)-5, body[5:])
		}
		first := s.raw(t, chunked(orderBody))
		first.want(t, 201, "")
		s.send(post("k", orderBody)).wantSame(t, first)
		s.raw(t, chunked(`{"ref":"r","amount":1201}`)).want(t, 422, reprise.CodeKeyReused)
		s.wantRows("r", 1)
	})
	t.Run("100 Continue is sent to whoever may send a body that fits", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := s.dial(t)
		c.write(head("k", withLength(len(orderBody)), "Expect: 100-continue"))
		if a := c.response(); a.status != 100 {
			t.Fatalf("got %d, want 100", a.status)
		}
		c.write(orderBody)
		c.response().want(t, 201, "")
		s.raw(t, head("k2", withLength(10<<20), "Expect: 100-continue")).want(t, 413, reprise.CodeTooLarge)
		s.raw(t, strings.Replace(head("k3", withLength(len(orderBody)), "Expect: 100-continue"), "dev-ann", "none", 1)).
			want(t, 401, reprise.CodeUnauthenticated)
		s.wantRows("r", 1)
	})
	t.Run("SEC-18 a body that trickles claims nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := s.dial(t)
		c.write(head("k", withLength(len(orderBody))) + orderBody[:5])
		s.awaitArrivals(1)
		first := s.send(post("k", orderBody))
		first.want(t, 201, "")
		c.write(orderBody[5:])
		late := c.response()
		late.wantReplay(t, true)
		late.wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("a body that does not come in time is 408", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.http = func(h *http.Server) { h.ReadTimeout = 200 * time.Millisecond } })
		a := s.raw(t, head("k", withLength(len(orderBody)))+orderBody[:5])
		a.want(t, 408, "request-timeout")
		s.wantRows("r", 0)
		s.send(post("k", orderBody)).want(t, 201, "")
	})
	t.Run("HEAD has the fields of GET and no body", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.send(post(newKey(), orderBody)).want(t, 201, "")
		get := s.send(call{method: "GET", path: "/orders/1", caller: "ann"})
		a := s.send(call{method: "HEAD", path: "/orders/1", caller: "ann"})
		if a.status != 200 || a.body != "" || a.header.Get("Content-Length") != fmt.Sprint(len(get.body)) || a.header.Get("Etag") != `"1"` {
			t.Errorf("got %d %q %v", a.status, a.body, a.header)
		}
		s.send(call{method: "GET", path: "/orders/1", caller: "bob"}).want(t, 404, "not-found")
		s.send(call{method: "GET", path: "/orders/1"}).want(t, 401, reprise.CodeUnauthenticated)
	})
}

func TestDisconnect(t *testing.T) {
	t.Parallel()

	// gone lets a test wait until the server has seen that its client is gone.
	gone := func(o *options, requests chan context.Context) {
		known := o.server.Callers
		o.server.Callers = func(r *http.Request) (reprise.Caller, error) {
			requests <- r.Context()
			return known(r)
		}
	}

	t.Run("L13 a client that leaves during the work does not stop it", func(t *testing.T) {
		t.Parallel()
		requests := make(chan context.Context, 9)
		s := setup(t, func(o *options) { gone(o, requests) })
		started, release := make(chan struct{}), make(chan struct{})
		s.whenWorking(func(ctx context.Context, _ *sql.Tx) error {
			close(started)
			<-release
			return ctx.Err()
		})
		c := s.dial(t)
		c.write(head("k", withLength(len(orderBody))) + orderBody)
		<-started
		c.reset()
		<-(<-requests).Done()
		close(release)
		eventually(t, "the row is committed", func() bool { return s.rows("r") == 1 })
		a := s.send(post("k", orderBody))
		a.want(t, 201, "")
		a.wantReplay(t, true)
		s.wantRows("r", 1)
		if s.runs.Load() != 1 {
			t.Errorf("work ran %d times", s.runs.Load())
		}
	})
	t.Run("HTTP-20 a stream that is cancelled does not stop it either", func(t *testing.T) {
		t.Parallel()
		requests := make(chan context.Context, 9)
		s := setup(t, func(o *options) {
			o.http2 = true
			gone(o, requests)
		})
		started, release := make(chan struct{}), make(chan struct{})
		s.whenWorking(func(ctx context.Context, _ *sql.Tx) error {
			close(started)
			<-release
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		c := post("k", orderBody)
		c.ctx = ctx
		cancelled := make(chan error, 1)
		go func() {
			_, err := s.try(c)
			cancelled <- err
		}()
		<-started
		cancel()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled copy got %v", err)
		}
		<-(<-requests).Done()
		close(release)
		a := s.send(post("k", orderBody)) // Waits for the first, or comes after it.
		a.want(t, 201, "")
		a.wantReplay(t, true)
		s.wantRows("r", 1)
	})
	t.Run("HTTP-19 the same bytes twice on one connection are one effect", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := s.dial(t)
		request := head("k", withLength(len(orderBody))) + orderBody
		c.write(request + request)
		first, again := c.response(), c.response()
		first.want(t, 201, "")
		again.wantReplay(t, true)
		again.wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("R15.1 a response that is lost after COMMIT is given to the next attempt", func(t *testing.T) {
		t.Parallel()
		requests := make(chan context.Context, 9)
		committed, release := make(chan struct{}), make(chan struct{})
		s := setup(t, func(o *options) {
			gone(o, requests)
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &held{d, committed, release} }
		})
		c := s.dial(t)
		c.write(head("k", withLength(len(orderBody))) + orderBody)
		<-committed
		s.wantRows("r", 1)
		c.reset()
		<-(<-requests).Done()
		close(release)
		a := s.send(post("k", orderBody))
		a.want(t, 201, "")
		a.wantReplay(t, true)
		s.wantRows("r", 1)
	})
	t.Run("a client that leaves before its body is complete has no effect", func(t *testing.T) {
		t.Parallel()
		requests := make(chan context.Context, 9)
		s := setup(t, func(o *options) { gone(o, requests) })
		c := s.dial(t)
		c.write(head("k", withLength(len(orderBody))) + orderBody[:5])
		request := <-requests
		c.reset()
		<-request.Done()
		s.wantRows("r", 0)
		a := s.send(post("k", orderBody))
		a.want(t, 201, "")
		a.wantReplay(t, false)
		s.wantRows("r", 1)
	})
	t.Run("a client that leaves while it waits for another attempt changes nothing", func(t *testing.T) {
		t.Parallel()
		requests := make(chan context.Context, 9)
		s := setup(t, func(o *options) { gone(o, requests) })
		started, release := make(chan struct{}), make(chan struct{})
		s.whenWorking(func(context.Context, *sql.Tx) error {
			close(started)
			<-release
			return nil
		})
		first := s.async(post("k", orderBody))
		<-started
		<-requests
		c := s.dial(t)
		c.write(head("k", withLength(len(orderBody))) + orderBody)
		request := <-requests
		c.reset()
		<-request.Done()
		close(release)
		one := <-first
		one.want(t, 201, "")
		s.send(post("k", orderBody)).wantSame(t, one)
		s.wantRows("r", 1)
	})
}

// held keeps the first answer back after its COMMIT.
type held struct {
	store.Driver[*sql.Tx]
	committed, release chan struct{}
}

func (d *held) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, *sql.Tx) (store.Completion, error),
) (store.Entry, bool, error) {
	e, executed, err := d.Driver.Execute(ctx, c, work)
	if executed {
		close(d.committed)
		<-d.release
	}
	return e, executed, err
}
