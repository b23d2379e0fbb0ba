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
)

// maxMessage bounds one request or one answer, in bytes.
const maxMessage = 64 << 20

// Proxy forwards HTTP/1.1 from a listener to one upstream. Create one with
// Listen. It is safe for concurrent use.
type Proxy struct {
	upstream atomic.Value // string: host:port
	plan     atomic.Value // Plan
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	requests  atomic.Int64
	forwarded atomic.Int64

	mu    sync.Mutex
	fired map[Kind]int
	seen  map[string]int
	conns map[net.Conn]struct{}
}

// Listen starts a proxy on addr, such as "127.0.0.1:0", to upstream, a host and
// port. A nil plan passes everything. ctx bounds the start alone: Close ends the
// proxy.
func Listen(ctx context.Context, addr, upstream string, plan Plan) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, fired: map[Kind]int{}, seen: map[string]int{}, conns: map[net.Conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.SetUpstream(upstream)
	p.SetPlan(plan)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host and port the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

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
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.track(conn) {
			return
		}
		p.wg.Go(func() {
			defer p.untrack(conn)
			p.serve(conn)
		})
	}
}

// track remembers a connection so that Close can end it.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) untrack(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

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

// reset closes the connection with RST, so that the peer sees a reset and not an
// end.
func (c *client) reset() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.conn.Close()
}

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
	var dialer net.Dialer
	conn, err := dialer.DialContext(p.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if !p.track(conn) {
		return nil, net.ErrClosed
	}
	defer p.untrack(conn)

	out := msg.req.Clone(p.ctx)
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
