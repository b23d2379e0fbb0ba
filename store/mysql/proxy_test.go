// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// proxy stands between a driver and the server and cuts the connection on one
// side or the other of the first message that matters.
type proxy struct {
	t        *testing.T
	upstream string
	listener net.Listener
	// matters finds the message at which the connection is cut; answered says that
	// the server is let carry it out. armed is cleared by the first cut.
	matters  func(message []byte) bool
	answered bool
	armed    atomic.Bool
	cuts     atomic.Int32
}

func newProxy(t *testing.T, upstream string, matters func(message []byte) bool, answered bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, upstream: upstream, listener: l, matters: matters, answered: answered}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var cut atomic.Bool
	back := make(chan struct{})
	go func() {
		defer close(back)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if cut.Load() || err != nil {
				return // what is read after the cut is the answer that gets lost
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	for {
		message, err := readMessage(client)
		if err != nil {
			break
		}
		if p.matters(message) && p.armed.CompareAndSwap(true, false) {
			p.cuts.Add(1)
			cut.Store(true)
			if p.answered {
				if _, err := server.Write(message); err != nil {
					p.t.Errorf("the proxy could not pass the message on: %v", err)
				}
				<-back // the server has carried it out
			}
			break
		}
		if _, err := server.Write(message); err != nil {
			break
		}
	}
	_ = server.Close()
	<-back
}

// holds finds messages with a text in them, ends those that end with it.
func holds(text string) func([]byte) bool {
	return func(message []byte) bool { return bytes.Contains(message, []byte(text)) }
}

func ends(text string) func([]byte) bool {
	return func(message []byte) bool { return bytes.HasSuffix(message, []byte(text)) }
}

// readMessage reads one packet of the client: three bytes of length, a number,
// and the rest.
func readMessage(r io.Reader) ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	message := make([]byte, len(header)+(int(header[0])|int(header[1])<<8|int(header[2])<<16))
	copy(message, header)
	_, err := io.ReadFull(r, message[4:])
	return message, err
}
