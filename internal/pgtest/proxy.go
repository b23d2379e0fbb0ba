// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a driver and the server, and does something to one message
// of a client: a simple query, or everything of the extended protocol up to the
// Sync that has the server act on it.
type Proxy struct {
	t        *testing.T
	listener net.Listener
	server   string
	links    sync.WaitGroup

	mu     sync.Mutex
	armed  func(l *Link, message []byte) // takes the message over
	suffix string                        // of its last statement
	open   []*Link
}

// Link is one connection through a proxy.
type Link struct {
	client, server net.Conn
	mute           chan struct{} // closed: answers are dropped
	over           chan struct{} // closed: the server's session has ended
}

// StartProxy returns a proxy in front of the server of dsn, and the URL through it.
func StartProxy(t *testing.T, dsn string) (p *Proxy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &Proxy{t: t, listener: l, server: u.Host}
	p.links.Go(p.accept)
	t.Cleanup(p.close)
	u.Host = l.Addr().String()
	return p, u.String()
}

// close also ends what a test that failed half way has left open.
func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, l := range p.open {
		_ = l.client.Close()
		_ = l.server.Close()
	}
	p.mu.Unlock()
	p.links.Wait()
}

// Arm lets do take over the next message whose last statement ends in suffix, in
// upper or lower case. fired waits until it has, and fails the test if that does
// not come to pass.
func (p *Proxy) Arm(suffix string, do func(l *Link, message []byte)) (fired func()) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suffix = strings.ToUpper(suffix)
	p.armed = func(l *Link, message []byte) {
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

// take disarms the proxy if the statement is the one it waits for.
func (p *Proxy) take(statement string) (do func(l *Link, message []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed == nil || !strings.HasSuffix(strings.ToUpper(statement), p.suffix) {
		return nil
	}
	do, p.armed = p.armed, nil
	return do
}

func (p *Proxy) accept() {
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
		l := &Link{client: client, server: server, mute: make(chan struct{}), over: make(chan struct{})}
		p.mu.Lock()
		p.open = append(p.open, l)
		p.mu.Unlock()
		p.links.Go(func() { p.answers(l) })
		p.links.Go(func() { p.requests(l) })
	}
}

// answers copies what the server says until the link is muted or broken.
func (p *Proxy) answers(l *Link) {
	defer close(l.over)
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
func (p *Proxy) requests(l *Link) {
	message, err := read(nil, l.client, 0) // The start-up message has no type.
	for prepared := map[string]string{}; err == nil; {
		if _, err = l.server.Write(message); err != nil {
			break
		}
		var statement string
		if message, statement, err = next(l.client, prepared); err != nil {
			break
		}
		if do := p.take(statement); do != nil {
			do(l, message)
			return
		}
	}
	_ = l.server.Close()
}

// next reads what the server will act on at once, and the last statement of it.
// prepared are the statements of the session by name.
func next(client io.Reader, prepared map[string]string) (message []byte, statement string, err error) {
	for {
		begin := len(message)
		if message, err = read(message, client, 1); err != nil {
			return nil, "", err
		}
		first, rest, _ := bytes.Cut(message[begin+5:], []byte{0})
		second, _, _ := bytes.Cut(rest, []byte{0})
		switch message[begin] {
		case 'P': // Parse: a name and a text.
			prepared[string(first)] = string(second)
		case 'B': // Bind: a portal and the name of a statement.
			statement = prepared[string(second)]
		case 'D', 'E', 'C': // Describe, Execute, Close.
		case 'Q':
			return message, string(first), nil
		default: // Sync, or the end.
			return message, statement, nil
		}
	}
}

// read appends a message, whose length comes behind so many bytes.
func read(to []byte, from io.Reader, prefix int) ([]byte, error) {
	header := make([]byte, prefix+4)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(header[prefix:])-4)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, err
	}
	return append(append(to, header...), body...), nil
}

// Lose drops the message and the connection.
func Lose(l *Link, _ []byte) {
	l.Abort()
	_ = l.client.Close()
}

// LoseAnswer lets the server do what it is told, and drops its answer.
func LoseAnswer(l *Link, message []byte) {
	close(l.mute)
	l.Finish(message)
	_, _ = io.Copy(io.Discard, l.client)
}

// Leave breaks the client's side of a link; the server's session lives on until
// Finish or Abort.
func (l *Link) Leave() {
	close(l.mute)
	_ = l.client.Close()
}

// Finish gives the server a message and, once it has done what that says, the end
// of the session.
func (l *Link) Finish(message []byte) {
	terminate := []byte{'X', 0, 0, 0, 4}
	_, _ = l.server.Write(append(message, terminate...))
}

// Over is closed when the server's session has ended.
func (l *Link) Over() <-chan struct{} { return l.over }

// Abort breaks the server's side of a link.
func (l *Link) Abort() { _ = l.server.Close() }
