// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/retryhttp"
)

// benchClient measures what a first attempt that succeeds costs beyond the bare
// http.Client: with its evidence, its record, an answer that is read before it is
// believed, and for POST a new key. The numbers are differences, and times are
// ratios.
//
// The caller's context has a deadline, as that of a service's handler has, on
// both sides. Where it has none, the policy's own limits apply, which cost a
// context and a timer that the bare client does without; those rows inform.
func benchClient(ctx context.Context, r *report, opt options) error {
	server, err := listen(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	sockets := http.DefaultTransport.(*http.Transport).Clone()
	defer sockets.CloseIdleConnections()

	for _, m := range []struct {
		method        string
		size          int
		allocs, bytes float64
	}{
		{http.MethodGet, 0, 8, 900},
		{http.MethodPost, 1 << 10, 12, 1536},
	} {
		for _, base := range []struct {
			name string
			rt   http.RoundTripper
			ops  int
		}{
			{"in memory", stub{}, 20_000},
			{"loopback", sockets, 2_000},
		} {
			for _, limit := range []time.Duration{2 * time.Second, 0} {
				o := overhead{ctx, m.method, server.url, bytes.Repeat([]byte("x"), m.size), limit}
				bare, ours, err := compare(ctx, opt.runs, base.ops,
					o.op(&http.Client{Transport: base.rt}),                                           //nolint:contextcheck // It has o.ctx.
					o.op(&http.Client{Transport: &retryhttp.Transport{Base: base.rt, Ledger: true}})) //nolint:contextcheck // It has o.ctx.
				if err != nil {
					return err
				}
				name, allocs, size := m.method+" "+base.name, m.allocs, m.bytes
				if limit == 0 {
					name, allocs, size = name+", no caller's deadline", 0, 0
				}
				add := func(what string, value, most, ours, bare float64) {
					r.add(row{
						Bench: "client", Row: name + ": " + what, Ratio: value, Target: most, AtMost: most > 0, Runs: opt.runs,
						Detail: fmt.Sprintf("%.1f, bare %.1f", ours, bare),
					})
				}
				add("allocations more", ours.allocs-bare.allocs, allocs, ours.allocs, bare.allocs)
				add("bytes more", ours.bytes-bare.bytes, size, ours.bytes, bare.bytes)
				add("time, ns", ours.ns/bare.ns, 0, ours.ns, bare.ns)
			}
		}
	}
	return nil
}

// overhead is one kind of request.
type overhead struct {
	ctx     context.Context
	method  string
	url     string
	content []byte
	limit   time.Duration
}

// op returns a function that makes one request with c and reads the answer.
func (o overhead) op(c *http.Client) func() error {
	return func() error {
		ctx := o.ctx
		if o.limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.limit)
			defer cancel()
		}
		var body io.Reader
		if len(o.content) > 0 {
			body = bytes.NewReader(o.content)
		}
		req, err := http.NewRequestWithContext(ctx, o.method, o.url, body)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the server answered %s", resp.Status)
		}
		return resp.Body.Close()
	}
}

// cost is of one operation.
type cost struct{ allocs, bytes, ns float64 }

// compare measures two operations in turn, and returns the median of their
// allocations and the minimum of their times.
func compare(ctx context.Context, runs, ops int, a, b func() error) (costA, costB cost, err error) {
	var as, bs []cost
	for range runs {
		for _, side := range []struct {
			op   func() error
			into *[]cost
		}{{a, &as}, {b, &bs}} {
			c, err := costOf(ctx, ops, side.op)
			if err != nil {
				return cost{}, cost{}, err
			}
			*side.into = append(*side.into, c)
		}
	}
	return summary(as), summary(bs), nil
}

func costOf(ctx context.Context, ops int, op func() error) (cost, error) {
	for range ops / 10 { // Pools and connections are warm afterwards.
		if err := op(); err != nil {
			return cost{}, err
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range ops {
		if err := op(); err != nil {
			return cost{}, err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	n := float64(ops)
	return cost{
		float64(after.Mallocs-before.Mallocs) / n,
		float64(after.TotalAlloc-before.TotalAlloc) / n,
		float64(took) / n,
	}, ctx.Err()
}

func summary(cs []cost) cost {
	n := len(cs)
	allocs, bytes, ns := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, c := range cs {
		allocs[i], bytes[i], ns[i] = c.allocs, c.bytes, c.ns
	}
	return cost{median(allocs), median(bytes), slices.Min(ns)}
}

const answer = `{"id":"ord_1"}`

// stub answers in memory.
type stub struct{}

func (stub) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
	}, nil
}

// listener answers over sockets, and allocates nothing for it, so that its part
// is the same whatever fields a request has.
type listener struct {
	net.Listener

	url string
}

func listen(ctx context.Context) (*listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go converse(c)
		}
	}()
	return &listener{l, "http://" + l.Addr().String() + "/orders"}, nil
}

func (l *listener) close() { _ = l.Close() } // It ends with the process.

func converse(c net.Conn) {
	defer c.Close()
	full := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(answer)) + "\r\n\r\n" + answer)
	r := bufio.NewReader(c)
	for length := 0; ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			for _, d := range bytes.TrimSpace(v) {
				length = length*10 + int(d-'0')
			}
		}
		if len(line) > 2 {
			continue
		}
		if _, err := r.Discard(length); err != nil {
			return
		}
		if _, err := c.Write(full); err != nil {
			return
		}
		length = 0
	}
}
