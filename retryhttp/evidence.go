// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
)

// probe counts what net/http does with one attempt's request. Its hooks may be
// called from other goroutines, and late.
type probe struct {
	trace  httptrace.ClientTrace
	asked  atomic.Int32 // For a connection.
	conns  atomic.Int32 // Connections that were given.
	sends  atomic.Int32 // Header sections written to one.
	reused atomic.Bool
}

func (p *probe) hooks() *httptrace.ClientTrace {
	p.trace.GetConn = p.getConn
	p.trace.GotConn = p.gotConn
	p.trace.WroteHeaders = p.wroteHeaders
	return &p.trace
}

func (p *probe) getConn(string) { p.asked.Add(1) }

func (p *probe) gotConn(info httptrace.GotConnInfo) {
	p.reused.Store(info.Reused)
	p.conns.Add(1)
}

func (p *probe) wroteHeaders() { p.sends.Add(1) }

// count returns how often the request was sent. A Base that does not report has
// sent it once, as far as anybody knows.
func (p *probe) count() int {
	if p.asked.Load() == 0 && p.conns.Load() == 0 {
		return max(1, int(p.sends.Load()))
	}
	return int(p.sends.Load())
}

// neverSent reports whether the request can't have been processed: no complete
// header section went to a connection. ended says that the attempt was cancelled;
// then Base may have returned while a connection that it already had was still
// being written to. If no hook was called, nothing is proven: not every Base, and
// not every protocol that is registered with an http.Transport, calls them.
func (p *probe) neverSent(ended bool) bool {
	switch {
	case p.sends.Load() > 0:
		return false
	case p.conns.Load() > 0:
		return !ended
	default:
		return p.asked.Load() > 0
	}
}

// judgeError is what an attempt without an answer proves (rule C1).
func (a *attempt) judgeError(err error) retry.Verdict {
	expired := a.expired()
	if expired {
		err = a.call.Timeout()
	}
	p := &a.probe
	v := retry.Verdict{Outcome: reprise.Unknown, Trigger: "reset", Err: err, Sends: p.count(), Reused: p.reused.Load()}
	switch {
	case p.neverSent(expired || a.call.request.Context().Err() != nil):
		v.Outcome, v.Trigger, v.Final = reprise.NotProcessed, "connect", permanent(err)
	case p.asked.Load() == 0 && unsendable(err):
		v.Outcome, v.Trigger, v.Final, v.Sends = reprise.NotProcessed, "connect", true, 0
	case p.sends.Load() == 1 && refused(err):
		v.Outcome, v.Trigger = reprise.NotProcessed, "refused"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		v.Trigger = "timeout"
	}
	return v
}

// unsendable reports whether http.Transport refused the request before it looked
// for a connection, because it is wrong in itself. These errors have no type.
func unsendable(err error) bool {
	for _, text := range []string{
		"net/http: invalid ", "unsupported protocol scheme ", "http: nil Request.", "http: no Host in request URL",
	} {
		if strings.HasPrefix(err.Error(), text) {
			return true
		}
	}
	return false
}

// permanent reports whether a request that was never sent would meet the same
// again: a certificate that does not hold, a name that does not exist, a server
// that speaks plain HTTP on an https port.
func permanent(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// refused reports whether an HTTP/2 server refused the stream before looking at
// it, or left it out of the last one that it served (RFC 9113 sections 6.8 and
// 8.7). net/http has no exported error for either, and for a request with content
// wraps their text into another error. These texts begin with its own words, so
// that no server can send one; if they change, the outcome is Unknown again.
func refused(err error) bool {
	text := err.Error()
	if inner, ok := strings.CutPrefix(text, "http2: Transport: cannot retry err ["); ok {
		text = inner
	}
	return strings.HasPrefix(text, "stream error: stream ID ") && strings.Contains(text, "; REFUSED_STREAM") ||
		strings.HasPrefix(text, "http2: Transport received Server's graceful shutdown GOAWAY")
}
