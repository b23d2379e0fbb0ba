// SPDX-License-Identifier: Apache-2.0

// Package listener accepts connections for a proxy, and can end all that a proxy
// has, at both of its sides.
package listener

import (
	"context"
	"net"
	"sync"
)

// Listener serves connections until it is closed. Create one with Listen. It is
// safe for concurrent use.
type Listener struct {
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Listen listens on addr, such as "127.0.0.1:0". ctx bounds the start alone.
// Connections wait until Serve is called.
func Listen(ctx context.Context, addr string) (*Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &Listener{listener: listener, conns: map[net.Conn]struct{}{}}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l, nil
}

// Addr is the host and port that l listens on.
func (l *Listener) Addr() string { return l.listener.Addr().String() }

// Context ends when l is closed.
func (l *Listener) Context() context.Context { return l.ctx }

// Serve begins to hand each connection to serve, numbered from 1 in the order of
// their arrival, and closes it when that returns.
func (l *Listener) Serve(serve func(conn net.Conn, number int64)) {
	l.work.Go(func() {
		for number := int64(1); ; number++ {
			conn, err := l.listener.Accept()
			if err != nil || !l.track(conn) {
				return
			}
			l.work.Go(func() {
				defer l.Release(conn)
				serve(conn, number)
			})
		}
	})
}

// Go runs work that Close waits for. It is called by what Serve or Go runs.
func (l *Listener) Go(work func()) { l.work.Go(work) }

// Dial connects to addr. The connection is closed by Release, or by Close.
func (l *Listener) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if !l.track(conn) {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// track remembers a connection so that Close can end it.
func (l *Listener) track(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		_ = conn.Close()
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

// Release closes a connection.
func (l *Listener) Release(conn net.Conn) {
	l.mu.Lock()
	delete(l.conns, conn)
	l.mu.Unlock()
	_ = conn.Close()
}

// Close stops listening, closes every connection and waits for all work.
func (l *Listener) Close() error {
	l.cancel()
	err := l.listener.Close()
	l.mu.Lock()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.work.Wait()
	return err
}

// Reset closes a connection with RST, so that its peer sees a reset and not an
// end.
func Reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
