// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// errHeld is what a handler under Middleware gets for an attempt to reach the
// connection. errors.Is(err, http.ErrNotSupported) holds.
var errHeld = fmt.Errorf("ledgerhttp: the response is held back until COMMIT, "+
	"so it can't be flushed, streamed or hijacked: %w", http.ErrNotSupported)

// errAnswered is what a late Write gets.
var errAnswered = errors.New("ledgerhttp: the response was already answered; " +
	"handle errors inside of Middleware, and write nothing after the handler has returned")

// recorder is the http.ResponseWriter of a handler under Middleware. Nothing of
// it reaches the connection: it implements neither http.Flusher nor Unwrap, so
// that no wrapper finds a way around it. It keeps net/http's rules otherwise. It
// is used by one goroutine at a time, like any ResponseWriter.
type recorder struct {
	header http.Header  // what the handler reads and changes
	final  http.Header  // header as it was when the status was written
	status int          // 0 until a final status is written
	body   bytes.Buffer // complete, or empty with excess set
	limit  int64        // of body, in bytes
	excess error        // what the Write that went over the limit got
	closed bool         // the handler has returned
	misuse func(string) // reports what net/http would log
}

// newRecorder starts with the fields that outer handlers have set already, as a
// plain ResponseWriter would show them.
func newRecorder(outer http.Header, limit int64, misuse func(string)) *recorder {
	h := outer.Clone()
	if h == nil {
		h = make(http.Header)
	}
	return &recorder{header: h, limit: limit, misuse: misuse}
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational responses are not
// sent: some clients take them for the first byte of an answer, and there is no
// answer before COMMIT.
func (w *recorder) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("ledgerhttp: invalid WriteHeader code %d", status))
	case w.closed:
		w.misuse("a status was written after the response was answered")
	case w.status != 0:
		w.misuse("superfluous WriteHeader call")
	case status < 200 && status != http.StatusSwitchingProtocols:
	default:
		w.status = status
		w.final = w.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.closed {
		return 0, errAnswered
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.excess == nil && int64(len(p)) > w.limit-int64(w.body.Len()) {
		w.excess = fmt.Errorf("ledgerhttp: the response is over the limit of %d bytes that are held in memory until COMMIT, "+
			"so nothing of it is kept or sent; raise Config.MaxResponse, or answer with a link to what is long", w.limit)
		w.body = bytes.Buffer{}
	}
	if w.excess != nil {
		return 0, w.excess
	}
	return w.body.Write(p)
}

// FlushError is found by http.ResponseController.Flush.
func (w *recorder) FlushError() error { return errHeld }

// Hijack implements http.Hijacker.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errHeld }

// run records what h answers to r.
func (w *recorder) run(h http.Handler, r *http.Request) {
	defer func() {
		// net/http does this for its own copy of a request only.
		if r.MultipartForm != nil {
			_ = r.MultipartForm.RemoveAll()
		}
	}()
	h.ServeHTTP(w, r)
	w.close()
}

// replace makes h the header that was recorded.
func (w *recorder) replace(h http.Header) {
	clear(h)
	maps.Copy(h, w.final)
}

// close ends the recording. A handler that wrote nothing has answered 200, as
// everywhere in net/http.
func (w *recorder) close() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.closed = true
	if _, set := w.final["Content-Type"]; !set && w.body.Len() > 0 && w.final.Get("Content-Encoding") == "" {
		// net/http would guess now; the guess is pinned, because it may be
		// another one after an upgrade of Go.
		w.final.Set("Content-Type", http.DetectContentType(w.body.Bytes()))
	}
	maps.DeleteFunc(w.final, func(name string, _ []string) bool { return framing[name] || trailer(name) })
}

// result is what the ledger stores.
func (w *recorder) result() reprise.Result {
	return reprise.Result{
		Status: w.status, Header: w.final, Body: w.body.Bytes(),
		Reference: w.final.Get("Location"),
	}
}

// framing names the fields of a response that belong to one connection or are
// written by this package. A handler has no say in them (rule L5).
var framing = map[string]bool{
	"Content-Length":    true,
	"Keep-Alive":        true,
	"Proxy-Connection":  true,
	"Te":                true,
	"Trailer":           true,
	"Transfer-Encoding": true,
	"Upgrade":           true,
	wire.HeaderReplayed: true,
	wire.HeaderExpires:  true,
}

func trailer(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

// bodyAllowed says whether a response with this status may have a body (RFC 9110
// section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
