// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
)

// act carries the fault out and reports whether the connection may be used on.
func (p *Proxy) act(c *client, msg *message, f Fault) (keep bool) {
	switch f.Kind {
	case DropBefore:
		p.count(f.Kind)
		c.reset()
		return false
	case Answer:
		p.count(f.Kind)
		return write(c, msg, plain(f))
	case Late:
		p.late(c, msg, f)
		return false
	case Duplicate:
		return p.duplicate(c, msg, f)
	default: // the others act once the upstream has answered
	}

	ans, err := p.forward(msg)
	if f.Upstream != nil {
		f.Upstream(status(ans))
	}
	if err != nil {
		// The upstream gave no answer, so the client gets none: a proxy that
		// invents a 502 here would hide what happened.
		c.reset()
		return false
	}
	return p.afterAnswer(c, msg, f, ans)
}

// afterAnswer acts once the upstream has answered completely. The fault counts
// before the client can notice it, so that whoever noticed finds it counted.
func (p *Proxy) afterAnswer(c *client, msg *message, f Fault, ans *answer) (keep bool) {
	if f.Kind != "" && f.Kind != Pass {
		p.count(f.Kind)
	}
	switch f.Kind {
	case "", Pass:
		return write(c, msg, ans)
	case CommitThenReset:
		c.reset()
	case CommitThenClose:
		_ = c.conn.Close()
	case HeadersThenReset:
		_, _ = c.conn.Write(head(ans, len(ans.body)))
		c.reset()
	case Truncate:
		_, _ = c.conn.Write(append(head(ans, len(ans.body)), ans.body[:len(ans.body)/2]...))
		_ = c.conn.Close()
	case SwapStatus:
		return write(c, msg, plain(f))
	case Hang:
		c.gone(p.listener.Context())
	default:
		panic(fmt.Sprintf("proxy: the plan asked for the unknown fault %q", f.Kind))
	}
	return false
}

// duplicate forwards copies at the same time and answers the first complete one.
func (p *Proxy) duplicate(c *client, msg *message, f Fault) (keep bool) {
	copies := max(f.Copies, 2)
	answers := make(chan *answer, copies)
	for range copies {
		p.listener.Go(func() {
			ans, err := p.forward(msg)
			if err != nil {
				ans = nil
			}
			answers <- ans
		})
	}
	var first *answer
	complete := 0
	for range copies {
		ans := <-answers
		if f.Upstream != nil {
			f.Upstream(status(ans))
		}
		if ans == nil {
			continue
		}
		complete++
		if first == nil {
			first = ans
		}
	}
	if complete == copies {
		p.count(f.Kind)
	}
	if first == nil {
		c.reset()
		return false
	}
	return write(c, msg, first)
}

// late keeps the client waiting and forwards when it is released.
func (p *Proxy) late(c *client, msg *message, f Fault) {
	p.listener.Go(func() {
		select {
		case <-f.Release:
		case <-p.listener.Context().Done():
			return
		}
		ans, err := p.forward(msg)
		if err == nil {
			p.count(f.Kind)
		}
		if f.Upstream != nil {
			f.Upstream(status(ans))
		}
	})
	c.gone(p.listener.Context())
}

// plain is a gateway's own answer.
func plain(f Fault) *answer {
	h := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(f.RetryAfter.Seconds())), 10))
	}
	return &answer{
		resp: &http.Response{StatusCode: f.Status, Header: h},
		body: fmt.Appendf(nil, "%d %s\n", f.Status, http.StatusText(f.Status)),
	}
}

// write sends the answer and reports whether the connection can be used on.
func write(c *client, msg *message, ans *answer) (keep bool) {
	length := len(ans.body)
	body := ans.body
	if msg.req.Method == http.MethodHead {
		body = nil
		if n, err := strconv.Atoi(ans.resp.Header.Get("Content-Length")); err == nil {
			length = n
		}
	}
	if _, err := c.conn.Write(append(head(ans, length), body...)); err != nil {
		return false
	}
	return !msg.req.Close
}

// head writes the status line and the header with the length that the client is
// to expect.
func head(ans *answer, length int) []byte {
	var b bytes.Buffer
	code := ans.resp.StatusCode
	_, _ = fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", code, http.StatusText(code))
	h := ans.resp.Header.Clone()
	for _, hop := range []string{"Connection", "Transfer-Encoding", "Content-Length"} {
		h.Del(hop)
	}
	if code != http.StatusNoContent && code != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	_ = h.Write(&b)
	_, _ = io.WriteString(&b, "\r\n")
	return b.Bytes()
}

func status(ans *answer) int {
	if ans == nil {
		return 0
	}
	return ans.resp.StatusCode
}
