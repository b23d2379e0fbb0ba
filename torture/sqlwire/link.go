// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"

	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/internal/listener"
)

// maxMessage bounds one message, in bytes.
const maxMessage = 64 << 20

// frame is one message of a protocol, as it stood on the wire.
type frame struct {
	// kind is the message's type in PostgreSQL, and the first byte of the payload
	// in MySQL.
	kind byte
	// body is the part of raw that is not its header.
	raw, body []byte
}

// reader reads one message.
type reader func(*bufio.Reader) (frame, error)

// readN reads a header and the body whose length it gives.
func readN(r io.Reader, header []byte, length int) (raw, body []byte, err error) {
	if length < 0 || length > maxMessage {
		return nil, nil, fmt.Errorf("sqlwire: a message of %d bytes", length)
	}
	raw = make([]byte, len(header)+length)
	copy(raw, header)
	_, err = io.ReadFull(r, raw[len(header):])
	return raw, raw[len(header):], err
}

// end is one side of a link.
type end struct {
	conn   net.Conn
	frames chan frame // closed when nothing more comes
	// ahead was read while something else was waited for.
	ahead []frame
}

// link is a client's connection and the one to the server that belongs to it.
// Its methods are called by one goroutine.
type link struct {
	proxy          *Proxy
	number         int64
	session        uint32
	client, server *end
	done           chan struct{}
}

// listen reads messages in a goroutine of its own, so that the end of either side
// is noticed while the other one is waited for.
func (l *link) listen(conn net.Conn, read reader) *end {
	e := &end{conn: conn, frames: make(chan frame)}
	l.proxy.listener.Go(func() {
		defer close(e.frames)
		r := bufio.NewReader(conn)
		for {
			f, err := read(r)
			if err != nil {
				return
			}
			select {
			case e.frames <- f:
			case <-l.done:
				return
			}
		}
	})
	return e
}

// fromClient waits for the next message of the client. What the server says
// meanwhile it says unasked, and is passed on at once.
func (l *link) fromClient() (frame, error) {
	if f, ok := l.client.next(); ok {
		return f, nil
	}
	for {
		select {
		case f, ok := <-l.client.frames:
			if !ok {
				return frame{}, errOver
			}
			return f, nil
		case f, ok := <-l.server.frames:
			if !ok {
				return frame{}, errOver
			}
			if err := l.toClient(f); err != nil {
				return frame{}, err
			}
		}
	}
}

// fromServer waits for the next message of the server, as long as the client is
// there.
func (l *link) fromServer() (frame, error) {
	for {
		select {
		case f, ok := <-l.server.frames:
			if !ok {
				return frame{}, errOver
			}
			return f, nil
		case f, ok := <-l.client.frames:
			if !ok {
				return frame{}, errOver
			}
			l.client.ahead = append(l.client.ahead, f)
		}
	}
}

// next takes a message that was read ahead.
func (e *end) next() (frame, bool) {
	if len(e.ahead) == 0 {
		return frame{}, false
	}
	f := e.ahead[0]
	e.ahead = e.ahead[1:]
	return f, true
}

func (l *link) toClient(frames ...frame) error { return write(l.client.conn, frames) }

func (l *link) toServer(frames ...frame) error { return write(l.server.conn, frames) }

func write(conn net.Conn, frames []frame) error {
	buffers := make(net.Buffers, 0, len(frames))
	for _, f := range frames {
		buffers = append(buffers, f.raw)
	}
	_, err := buffers.WriteTo(conn)
	return err
}

// at asks the plan what to do at a point, and does what is the same in every
// protocol. A connection that is over is errOver; a fault that is returned without
// it is Pass, or Answer or Cancel, which are for the protocol to carry out.
func (l *link) at(when crashpoint.When, statement string) (Fault, error) {
	f := l.proxy.ask(when, statement, l.number, l.session)
	switch f.Kind {
	case "", Pass:
		return Fault{Kind: Pass}, nil
	case Answer, Cancel:
		if when == crashpoint.After && !f.Error.EndsSession {
			panic("sqlwire: the plan refuses or cancels a statement that was executed: " + statement)
		}
		return f, nil
	case Reset:
		l.proxy.count(f.Kind)
		listener.Reset(l.client.conn)
	case Close:
		l.proxy.count(f.Kind)
		_ = l.client.conn.Close()
	case Blackhole:
		l.proxy.count(f.Kind)
		l.blackhole(f.Release)
	default:
		panic(fmt.Sprintf("sqlwire: the plan asked for the unknown fault %q", f.Kind))
	}
	return f, errOver
}

// blackhole takes in what the client sends, its end too, and passes nothing on.
func (l *link) blackhole(release <-chan struct{}) {
	client := l.client.frames
	for {
		select {
		case _, ok := <-client:
			if !ok {
				client = nil
			}
		case <-release:
			listener.Reset(l.client.conn)
			return
		case <-l.proxy.listener.Context().Done():
			return
		}
	}
}

// ring opens another connection to the server, for a message that must not wait
// for the session's own, and waits until the server has closed it.
func (l *link) ring(ctx context.Context, message []byte) error {
	conn, err := l.proxy.listener.Dial(ctx, l.proxy.upstream)
	if err != nil {
		return err
	}
	defer l.proxy.listener.Release(conn)
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}
