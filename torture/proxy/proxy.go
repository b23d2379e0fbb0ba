// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/torture/internal/listener"
)

// maxMessage bounds one request or one answer, in bytes.
const maxMessage = 64 << 20

// Proxy forwards HTTP/1.1 from a listener to one upstream. Create one with
// Listen. It is safe for concurrent use.
type Proxy struct {
	upstream atomic.Value // string: host:port
	plan     atomic.Value // Plan
	listener *listener.Listener

	requests  atomic.Int64
	forwarded atomic.Int64

	mu    sync.Mutex
	fired map[Kind]int
	seen  map[string]int
}

// Listen starts a proxy on addr, such as "127.0.0.1:0", to upstream, a host and
// port. A nil plan passes everything. ctx bounds the start alone: Close ends the
// proxy.
func Listen(ctx context.Context, addr, upstream string, plan Plan) (*Proxy, error) {
	l, err := listener.Listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, fired: map[Kind]int{}, seen: map[string]int{}}
	p.SetUpstream(upstream)
	p.SetPlan(plan)
	l.Serve(func(conn net.Conn, _ int64) { p.serve(conn) })
	return p, nil
}

// Addr is the host and port the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr() }

// SetUpstream sends requests that arrive from now on to another host and port,
// such as that of a restarted server.
func (p *Proxy) SetUpstream(addr string) { p.upstream.Store(addr) }

// SetPlan replaces the plan for requests that arrive from now on.
func (p *Proxy) SetPlan(plan Plan) {
	if plan == nil {
		plan = func(Request) Fault { return Fault{} }
	}
	p.plan.Store(plan)
}

// Fired returns how often each kind of fault fired. A fault that needs the
// upstream's answer, such as CommitThenReset, counts only if there was one.
func (p *Proxy) Fired() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.fired)
}

// Requests counts the requests that arrived whole, and Forwarded the copies that
// the upstream answered completely.
func (p *Proxy) Requests() int64 { return p.requests.Load() }

// Forwarded counts the copies that the upstream answered completely.
func (p *Proxy) Forwarded() int64 { return p.forwarded.Load() }

// Close stops listening, closes every connection and waits for their work.
func (p *Proxy) Close() error { return p.listener.Close() }

// serve handles the requests of one client connection, one after the other.
func (p *Proxy) serve(conn net.Conn) {
	client := &client{conn: conn, r: bufio.NewReader(conn)}
	for {
		msg, err := readRequest(client)
		if err != nil {
			return
		}
		fault := p.decide(msg)
		if keep := p.act(client, msg, fault); !keep {
			return
		}
	}
}

func (p *Proxy) decide(msg *message) Fault {
	key := msg.req.Header.Get("Idempotency-Key")
	request := Request{
		Number: p.requests.Add(1),
		Method: msg.req.Method, Path: msg.req.URL.Path,
		Key: key, Header: msg.req.Header,
	}
	p.mu.Lock()
	request.Seen = p.seen[key]
	p.seen[key]++
	p.mu.Unlock()
	plan, _ := p.plan.Load().(Plan)
	return plan(request)
}

func (p *Proxy) count(k Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired[k]++
}

// client is the connection a request came from.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func (c *client) reset() { listener.Reset(c.conn) }

// gone waits until the client closes or the context ends.
func (c *client) gone(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Now()) })
	defer stop()
	_, _ = io.Copy(io.Discard, c.r)
}

// message is one request that was read whole.
type message struct {
	req  *http.Request
	body []byte
}

func readRequest(c *client) (*message, error) {
	req, err := http.ReadRequest(c.r)
	if err != nil {
		return nil, err
	}
	if req.Header.Get("Expect") != "" {
		if _, err := io.WriteString(c.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, err
		}
		req.Header.Del("Expect")
	}
	body, err := readAll(req.Body)
	if err != nil {
		return nil, err
	}
	return &message{req: req, body: body}, nil
}

// answer is one response that was read whole.
type answer struct {
	resp *http.Response
	body []byte
}

// forward sends one copy of the request on a connection of its own and reads the
// whole answer.
func (p *Proxy) forward(msg *message) (*answer, error) {
	addr, _ := p.upstream.Load().(string)
	ctx := p.listener.Context()
	conn, err := p.listener.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer p.listener.Release(conn)

	out := msg.req.Clone(ctx)
	out.Close = true
	out.ContentLength = int64(len(msg.body))
	out.TransferEncoding = nil
	out.Body = io.NopCloser(bytes.NewReader(msg.body))
	if len(msg.body) == 0 {
		out.Body = http.NoBody
	}
	if err := out.Write(conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), msg.req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := readAll(resp.Body)
	if err != nil {
		return nil, err
	}
	p.forwarded.Add(1)
	return &answer{resp: resp, body: body}, nil
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxMessage+1))
	if err == nil && len(b) > maxMessage {
		err = errors.New("proxy: message over 64 MiB")
	}
	return b, err
}
