// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// Frame types and flags of RFC 9113 section 6.
const (
	frameHeaders   = 1
	frameRSTStream = 3
	frameSettings  = 4
	frameGoAway    = 7
	flagAck        = 1 // On SETTINGS.
	flagEndStream  = 1
	flagEndHeaders = 4
)

// streams is a server that speaks just enough HTTP/2, without TLS, to answer the
// nth stream with act.
func streams(t *testing.T, act func(n int, send func(kind, flags byte, stream uint32, payload ...byte), stream uint32)) (url string, count func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	var wg sync.WaitGroup
	var live sync.Map
	serve := func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReader(c)
		if _, err := r.Discard(24); err != nil { // The preface.
			return
		}
		send := func(kind, flags byte, stream uint32, payload ...byte) {
			frame := make([]byte, 9, 9+len(payload))
			frame[2], frame[3], frame[4] = byte(len(payload)), kind, flags
			binary.BigEndian.PutUint32(frame[5:], stream)
			c.Write(append(frame, payload...))
		}
		send(frameSettings, 0, 0)
		for head := make([]byte, 9); ; {
			if _, err := io.ReadFull(r, head); err != nil {
				return
			}
			length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
			if _, err := r.Discard(length); err != nil {
				return
			}
			switch kind, flags := head[3], head[4]; {
			case kind == frameSettings && flags&flagAck == 0:
				send(frameSettings, flagAck, 0)
			case kind == frameHeaders:
				mu.Lock()
				n++
				i := n
				mu.Unlock()
				act(i, send, binary.BigEndian.Uint32(head[5:]))
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			live.Store(c, true)
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		live.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return "http://" + l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// TestHTTP2 is about streams that a server provably did not look at (rule C1,
// HTTP-26). net/http would resend some by itself; with GetBody nil it can't.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	const refusedStream, protocolError, internalError = 7, 1, 2
	code := func(c byte) []byte { return []byte{0, 0, 0, c} }
	for _, row := range []struct {
		name    string
		fault   func(send func(byte, byte, uint32, ...byte), stream uint32)
		streams int
		outcome reprise.Outcome
		trigger string
	}{
		{"REFUSED_STREAM", func(send func(byte, byte, uint32, ...byte), stream uint32) {
			send(frameRSTStream, 0, stream, code(refusedStream)...)
		}, 2, reprise.NotProcessed, "refused"},
		{"GOAWAY that leaves the stream out", func(send func(byte, byte, uint32, ...byte), stream uint32) {
			send(frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		}, 2, reprise.NotProcessed, "refused"},
		{"INTERNAL_ERROR", func(send func(byte, byte, uint32, ...byte), stream uint32) {
			send(frameRSTStream, 0, stream, code(internalError)...)
		}, 1, reprise.Unknown, "reset"},
		// net/http takes it for a refusal, and RFC 9113 does not.
		{"PROTOCOL_ERROR", func(send func(byte, byte, uint32, ...byte), stream uint32) {
			send(frameRSTStream, 0, stream, code(protocolError)...)
		}, 1, reprise.Unknown, "reset"},
	} {
		t.Run("C1 "+row.name+" is "+row.outcome.String(), func(t *testing.T) {
			t.Parallel()
			url, count := streams(t, func(n int, send func(byte, byte, uint32, ...byte), stream uint32) {
				if n == 1 {
					row.fault(send, stream)
					return
				}
				const status200 = 0x80 | 8 // The indexed field ":status: 200" of HPACK.
				send(frameHeaders, flagEndHeaders|flagEndStream, stream, status200)
			})
			base := &http.Transport{Protocols: new(http.Protocols)}
			base.Protocols.SetUnencryptedHTTP2(true)
			t.Cleanup(base.CloseIdleConnections)
			var records []reprise.Attempt
			c := client(t, &retryhttp.Transport{Base: base, OnAttempt: func(a reprise.Attempt) { records = append(records, a) }})
			resp, e := give(t, c, request(t, "POST", url, "order"))
			if resp != nil {
				resp.Body.Close()
			}
			if n := count(); n != row.streams || len(records) != row.streams || records[0].Outcome != row.outcome {
				t.Errorf("%d streams, records %+v", n, records)
			}
			if row.outcome == reprise.NotProcessed && (e != nil || records[1].Trigger != row.trigger) {
				t.Errorf("%v, trigger %q", e, records[1].Trigger)
			}
			if row.outcome == reprise.Unknown && (e == nil || e.Reason != retry.ReasonInDoubt) {
				t.Errorf("%v", e)
			}
		})
	}
}
