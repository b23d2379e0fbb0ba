// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// proxy stands between a driver and the server, and does something to the next
// message of a client that ends in COMMIT, or in another text.
type proxy struct {
	t        *testing.T
	listener net.Listener
	server   string

	mu     sync.Mutex
	armed  func(l *link, message []byte) // takes the message over
	suffix string                        // of that message
	open   []*link
	links  sync.WaitGroup
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	mute           chan struct{} // closed: answers are dropped
}

// startProxy returns a proxy and the URL through it.
func startProxy(t *testing.T, dsn string) (p *proxy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &proxy{t: t, listener: l, server: u.Host}
	p.links.Go(p.accept)
	t.Cleanup(p.close)
	u.Host = l.Addr().String()
	return p, u.String()
}

// close also ends what a test that failed half way has left open.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, l := range p.open {
		_ = l.client.Close()
		_ = l.server.Close()
	}
	p.mu.Unlock()
	p.links.Wait()
}

// arm lets do take over the next message that ends in COMMIT. fired waits until it
// has, and fails the test if that does not come to pass.
func (p *proxy) arm(do func(l *link, message []byte)) (fired func()) {
	return p.armFor("COMMIT", do)
}

func (p *proxy) armFor(suffix string, do func(l *link, message []byte)) (fired func()) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suffix = suffix
	p.armed = func(l *link, message []byte) {
		do(l, message)
		close(done)
	}
	return func() {
		p.t.Helper()
		select {
		case <-done:
		case <-time.After(patience):
			p.t.Fatalf("no message that ends in %q was taken over", suffix)
		}
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			p.t.Errorf("dial the server: %v", err)
			_ = client.Close()
			continue
		}
		l := &link{client: client, server: server, mute: make(chan struct{})}
		p.mu.Lock()
		p.open = append(p.open, l)
		p.mu.Unlock()
		p.links.Go(func() { p.answers(l) })
		p.links.Go(func() { p.requests(l) })
	}
}

// answers copies what the server says until the link is muted or broken.
func (p *proxy) answers(l *link) {
	b := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(b)
		if err != nil {
			_ = l.client.Close()
			return
		}
		select {
		case <-l.mute:
		default:
			_, _ = l.client.Write(b[:n])
		}
	}
}

// requests copies what the client says, message by message.
func (p *proxy) requests(l *link) {
	kept := false
	defer func() {
		if !kept {
			_ = l.server.Close()
		}
	}()
	header := make([]byte, 5)
	for first := true; ; first = false {
		h := header
		if first {
			h = header[1:] // the start-up message has no type
		}
		if _, err := io.ReadFull(l.client, h); err != nil {
			return
		}
		message := make([]byte, 0, 256)
		message = append(message, h...)
		body := make([]byte, binary.BigEndian.Uint32(h[len(h)-4:])-4)
		if _, err := io.ReadFull(l.client, body); err != nil {
			return
		}
		message = append(message, body...)
		if !first && message[0] == 'Q' {
			if do := p.take(message); do != nil {
				kept = true
				do(l, message)
				return
			}
		}
		if _, err := l.server.Write(message); err != nil {
			return
		}
	}
}

// take disarms the proxy if the message is the one it waits for.
func (p *proxy) take(message []byte) (do func(l *link, message []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed == nil || !bytes.HasSuffix(message, []byte(p.suffix+"\x00")) {
		return nil
	}
	do, p.armed = p.armed, nil
	return do
}

// lose drops the message and the connection.
func lose(l *link, _ []byte) {
	_ = l.server.Close()
	_ = l.client.Close()
}

// loseAnswer lets the server do what it is told, and drops its answer.
func loseAnswer(l *link, message []byte) {
	close(l.mute)
	_, _ = l.server.Write(message)
	// Terminate: the server ends the session when it has done the rest.
	_, _ = l.server.Write([]byte{'X', 0, 0, 0, 4})
	_, _ = io.Copy(io.Discard, l.client)
}
