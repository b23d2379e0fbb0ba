// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// arrival is one request that the server has processed: read to its end.
type arrival struct {
	conn   int // From 1.
	header http.Header
	body   string
	length int64
}

// server speaks HTTP/1.1 by hand, so that it can break off anywhere. It counts
// what it processed.
type server struct {
	url string

	mu       sync.Mutex
	conns    int
	open     int
	arrivals []arrival
}

// exchange is one processed request of which the answer is still to be given.
type exchange struct {
	n    int // Requests processed so far, this one included.
	conn net.Conn
	arrival
}

// serve starts a server that answers with act, which reports whether the
// connection goes on.
func serve(t *testing.T, act func(x exchange) bool) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: "http://" + l.Addr().String()}
	var wg sync.WaitGroup
	var live sync.Map
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			live.Store(c, true)
			wg.Go(func() {
				defer live.Delete(c)
				s.connection(c, act)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		live.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return s
}

func (s *server) connection(c net.Conn, act func(x exchange) bool) {
	defer c.Close()
	s.mu.Lock()
	s.conns++
	s.open++
	conn := s.conns
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.open--; s.mu.Unlock() }()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		a := arrival{conn, req.Header, string(body), req.ContentLength}
		s.mu.Lock()
		s.arrivals = append(s.arrivals, a)
		n := len(s.arrivals)
		s.mu.Unlock()
		if !act(exchange{n, c, a}) {
			return
		}
	}
}

func (s *server) seen() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrival(nil), s.arrivals...)
}

func (s *server) connections() (all, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns, s.open
}

// answer writes a whole answer. fields are header lines.
func (x exchange) answer(status int, body string, fields ...string) bool {
	fmt.Fprintf(x.conn, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), len(body))
	for _, f := range fields {
		fmt.Fprintf(x.conn, "%s\r\n", f)
	}
	fmt.Fprintf(x.conn, "\r\n%s", body)
	return true
}

// raw writes text and hangs up.
func (x exchange) raw(text string) bool {
	io.WriteString(x.conn, strings.ReplaceAll(text, "\n", "\r\n"))
	return false
}

// reset breaks the connection with RST.
func (x exchange) reset() bool {
	x.conn.(*net.TCPConn).SetLinger(0)
	return false
}

// hang keeps the connection silent until the client gives up.
func (x exchange) hang() bool {
	io.Copy(io.Discard, x.conn)
	return false
}

// policy is fast enough for tests on real sockets.
func policy(t *testing.T, o retry.Options) *retry.Policy {
	t.Helper()
	if o.Base == 0 {
		o.Base, o.Cap = time.Millisecond, 5*time.Millisecond
	}
	p, err := retry.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// client returns an http.Client on rt and a fresh http.Transport below it.
func client(t *testing.T, rt *retryhttp.Transport) *http.Client {
	t.Helper()
	if rt.Base == nil {
		base := http.DefaultTransport.(*http.Transport).Clone()
		rt.Base = base
		t.Cleanup(base.CloseIdleConnections)
	}
	if rt.Policy == nil {
		rt.Policy = policy(t, retry.Options{Deadline: 20 * time.Second, AttemptTimeout: 10 * time.Second})
	}
	return &http.Client{Transport: rt}
}

func request(t *testing.T, method, url, body string, fields ...string) *http.Request {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, content)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// read returns the answer's content and closes it.
func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return string(b)
}

// quiet is for servers that are broken on purpose.
var quiet = log.New(io.Discard, "", 0)
