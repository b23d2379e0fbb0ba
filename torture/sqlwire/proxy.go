// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/internal/listener"
)

// Proxy forwards one protocol from a listener to one server. Create one with
// Listen. It is safe for concurrent use.
type Proxy struct {
	protocol Protocol
	upstream string
	planned  atomic.Pointer[planned]
	listener *listener.Listener

	mu    sync.Mutex
	fired map[Kind]int
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
	l, err := listener.Listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{protocol: protocol, upstream: upstream, listener: l, fired: map[Kind]int{}}
	p.SetPlan(plan)
	l.Serve(p.serve)
	return p, nil
}

// Addr is the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr() }

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
func (p *Proxy) Close() error { return p.listener.Close() }

// serve connects to the server and carries messages until one side is over.
func (p *Proxy) serve(client net.Conn, number int64) {
	ctx := p.listener.Context()
	server, err := p.listener.Dial(ctx, p.upstream)
	if err != nil {
		listener.Reset(client)
		return
	}
	defer p.listener.Release(server)
	l := &link{proxy: p, number: number, done: make(chan struct{})}
	defer close(l.done)
	l.client = l.listen(client, p.protocol.client())
	l.server = l.listen(server, p.protocol.server())
	_ = p.protocol.serve(ctx, l) // what ended it is one side's business, and was told to the other
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
