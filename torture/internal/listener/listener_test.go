// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/reprise-go/reprise/torture/internal/listener"
)

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func listen(t *testing.T) *listener.Listener {
	t.Helper()
	l, err := listener.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestCloseEndsBothSides has a connection on either side of a proxy, of which
// both are waiting for the other's next byte.
func TestCloseEndsBothSides(t *testing.T) {
	t.Parallel()
	upstream, front := listen(t), listen(t)
	reached, ended := make(chan int64, 2), make(chan string, 2)
	upstream.Serve(func(conn net.Conn, number int64) {
		reached <- number
		_, _ = io.Copy(io.Discard, conn)
		ended <- "upstream"
	})
	front.Serve(func(net.Conn, int64) {
		conn, err := front.Dial(front.Context(), upstream.Addr())
		if err != nil {
			t.Error(err)
			return
		}
		defer front.Release(conn)
		front.Go(func() {
			<-front.Context().Done()
			ended <- "work"
		})
		_, _ = io.Copy(io.Discard, conn)
	})
	client := dial(t, front.Addr())
	if number := <-reached; number != 1 {
		t.Errorf("the first connection has number %d", number)
	}
	if err := front.Close(); err != nil {
		t.Fatal(err)
	}
	if got := map[string]bool{<-ended: true, <-ended: true}; !got["upstream"] || !got["work"] {
		t.Errorf("ended: %v", got)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the client's connection is open")
	}
	if _, err := front.Dial(t.Context(), upstream.Addr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a proxy that is closed connects to its server: %v", err)
	}
}

// TestReset: the peer is told that the connection broke, and not that it ended.
func TestReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(net.Conn)
		want error
	}{
		"reset": {listener.Reset, syscall.ECONNRESET},
		"close": {func(conn net.Conn) { _ = conn.Close() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			l.Serve(func(conn net.Conn, _ int64) {
				_, _ = conn.Read(make([]byte, 1)) // the peer has connected, and has nothing under way
				c.end(conn)
			})
			peer := dial(t, l.Addr())
			if _, err := peer.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("the peer read %v, want %v", err, c.want)
			}
		})
	}
}
