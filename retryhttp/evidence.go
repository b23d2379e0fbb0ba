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

// record fills in what an attempt's record says of connections. A Base that does
// not report has sent the request once, as far as anybody knows.
func (p *probe) record(n *reprise.Attempt, reports bool) {
	n.Sends = int(p.sends.Load())
	if !reports && p.asked.Load() == 0 {
		n.Sends = 1
	}
	n.Reused = p.reused.Load()
}

// neverSent reports whether the request can't have been processed: no complete
// header section went to a connection. ended says that the attempt was cancelled;
// then Base may have returned while a connection that it already had was still
// being written to. Without any hook called nothing is proven, unless Base is
// known to call them.
func (p *probe) neverSent(ended, reports bool) bool {
	switch {
	case p.sends.Load() > 0:
		return false
	case p.conns.Load() > 0:
		return !ended
	default:
		return reports || p.asked.Load() > 0
	}
}

// judgeError is what an attempt without an answer proves (rule C1).
func (a *attempt) judgeError(err error) retry.Verdict {
	parent := a.call.request.Context().Err()
	expired := a.expired.Load()
	if expired && parent == nil {
		err = a.call.Timeout()
	}
	v := retry.Verdict{Outcome: reprise.Unknown, Trigger: "reset", Err: err}
	if a.probe.neverSent(expired || parent != nil, a.direct()) {
		v.Outcome, v.Trigger = reprise.NotProcessed, "connect"
		// A request that net/http refuses before it asks for a connection is wrong in
		// itself.
		v.Final = permanent(err) || a.probe.asked.Load() == 0 && !expired && parent == nil
	} else if refused(err) && a.probe.sends.Load() == 1 {
		v.Outcome, v.Trigger = reprise.NotProcessed, "refused"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		v.Trigger = "timeout"
	}
	return v
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
