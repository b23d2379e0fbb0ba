// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// Proxy forwards one protocol from a listener to one server. Create one with
// Listen. It is safe for concurrent use.
type Proxy struct {
	protocol Protocol
	upstream string
	planned  atomic.Pointer[planned]
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	connections atomic.Int64

	mu    sync.Mutex
	fired map[Kind]int
	conns map[net.Conn]struct{}
}

// planned is a plan and the number of points it was asked about.
type planned struct {
	plan   Plan
	points atomic.Int64
}

// Listen starts a proxy on addr, such as "127.0.0.1:0", to upstream, a host and
// port. A nil plan passes everything. ctx bounds the start alone: Close ends the
// proxy.
func Listen(ctx context.Context, protocol Protocol, addr, upstream string, plan Plan) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		protocol: protocol, upstream: upstream, listener: listener,
		fired: map[Kind]int{}, conns: map[net.Conn]struct{}{},
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.SetPlan(plan)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetPlan replaces the plan for the points that are reached from now on, and
// counts them from 1 again.
func (p *Proxy) SetPlan(plan Plan) {
	if plan == nil {
		plan = func(Point) Fault { return Fault{} }
	}
	p.planned.Store(&planned{plan: plan})
}

// Fired returns how often each kind of fault was carried out. A fault after a
// statement counts only if the server answered it.
func (p *Proxy) Fired() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.fired)
}

// Points counts the points that were reached since the plan was set.
func (p *Proxy) Points() int64 { return p.planned.Load().points.Load() }

// Close stops listening, closes every connection and waits for their work. A plan
// that holds a connection must let it go first.
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
		number := p.connections.Add(1)
		p.wg.Go(func() {
			defer p.untrack(conn)
			p.serve(conn, number)
		})
	}
}

// serve connects to the server and carries messages until one side is over.
func (p *Proxy) serve(client net.Conn, number int64) {
	server, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.upstream)
	if err != nil {
		reset(client)
		return
	}
	if !p.track(server) {
		return
	}
	defer p.untrack(server)
	l := &link{proxy: p, number: number, done: make(chan struct{})}
	defer close(l.done)
	l.client = l.listen(client, p.protocol.client())
	l.server = l.listen(server, p.protocol.server())
	_ = p.protocol.serve(p.ctx, l) // what ended it is one side's business, and was told to the other
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

func (p *Proxy) count(k Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired[k]++
}

// ask consults the plan.
func (p *Proxy) ask(when crashpoint.When, statement string, connection int64, session uint32) Fault {
	now := p.planned.Load()
	return now.plan(Point{
		Boundary:   crashpoint.Boundary{Number: now.points.Add(1), When: when, Statement: statement},
		Connection: connection,
		Session:    session,
	})
}
