// SPDX-License-Identifier: Apache-2.0

// Package serve runs HTTP listeners the way every face of the program does:
// announced in one line of JSON, bounded in time and size, answering with
// problem documents also where no handler is reached, and drained before the
// program ends.
package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// The bounds of every listener. A handler that has read its request may take
// as long as it needs: what bounds it is the deadline of its own work.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10

	// maxDiscard is how much of a request is read and thrown away after it was
	// answered. A client that is still sending when the connection is closed is
	// told of a reset, and not of the answer.
	maxDiscard = 32 << 20

	// silentGrace is how long a connection on which no request has come yet is left
	// open when the listener ends.
	silentGrace = 200 * time.Millisecond
)

// Listener is one address that is listened on.
type Listener struct {
	role   string
	net    net.Listener
	server *http.Server
	conns  connections
}

// Listen takes addr, so that a port in use is found before anything else is
// started, and prepares to answer with h. The error is of exit.Usage for an
// address that is none, and of exit.Environment otherwise.
func Listen(ctx context.Context, role, addr string, h http.Handler, log *slog.Logger) (*Listener, error) {
	if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
		return nil, exit.Misused("give HOST:PORT, such as 127.0.0.1:8080; port 0 takes a free one",
			"the %s listener can't use the address %q: %w", role, addr, err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, exit.Refused("stop what listens there, or choose another port; port 0 takes a free one",
			"the %s listener can't listen: %w", role, err)
	}
	listener := &Listener{role: role, net: l}
	listener.server = &http.Server{
		Handler:           discarding(h),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         listener.conns.note,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return listener, nil
}

// discarding answers with h and takes what h has left of the request, so that
// the answer to a body that is too large is heard. A client that waits to be
// asked for its body is not asked.
func discarding(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, maxDiscard)
		}
	})
}

// Addr returns the address, with the port that was found if it was 0.
func (l *Listener) Addr() string { return l.net.Addr().String() }

// URL returns the base URL of the listener, without a slash at its end.
func (l *Listener) URL() string { return "http://" + l.Addr() }

// Announce writes the line that tells a parent process where to connect to.
func (l *Listener) Announce(w io.Writer) error {
	return json.NewEncoder(w).Encode(struct { //nolint:wrapcheck // the writer's own words say it.
		Listening string `json:"listening"`
		Role      string `json:"role"`
	}{l.Addr(), l.role})
}

// OnDrain has f called when Run stops taking requests, for example to end those
// that would wait for ever. It must be called before Run.
func (l *Listener) OnDrain(f func()) { l.server.RegisterOnShutdown(f) }

// Run answers until ctx ends. Then it takes no further request and waits until
// those in flight are answered, for at most drain; what is left by then is cut
// off, which is an error. A connection on which no request has come is not waited
// for, but what is under way gets a moment to arrive.
func (l *Listener) Run(ctx context.Context, drain time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- l.server.Serve(l.net) }()
	select {
	case err := <-failed:
		return fmt.Errorf("the %s listener failed: %w", l.role, err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	defer time.AfterFunc(min(silentGrace, drain/2), l.conns.closeSilent).Stop()
	if l.server.Shutdown(ctx) == nil {
		return nil
	}
	cut := l.conns.active()
	_ = l.server.Close()
	if cut == 0 {
		return nil
	}
	return &exit.Error{
		Code: exit.Failure,
		Hint: "what became of them is told by the same requests under the same keys; a longer drain lets them end",
		Err:  fmt.Errorf("the %s listener was closed with requests in flight after %v", l.role, drain),
	}
}

// Close gives the address back. It is for a listener that is not run after all.
func (l *Listener) Close() error { return l.net.Close() }
