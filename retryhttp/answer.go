// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
)

const (
	// errorBuffer is how much of an answer that is no success is always read: a
	// problem document decides what comes next.
	errorBuffer = 64 << 10
	// Of an answer that nobody will see this much is read, for at most this long,
	// so that its connection can be used again.
	drainBytes = 256 << 10
	drainTime  = 250 * time.Millisecond
)

// StatusError is an answer that is no success, as the error of its attempt.
type StatusError struct {
	// Status and Header are the answer's.
	Status int
	Header http.Header
	// Body is the beginning of its content, at most 64 KiB.
	Body []byte
	// Err is the *reprise.Error of a problem document, or why the answer broke
	// off; nil otherwise.
	Err error
}

// Error implements error.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("status %d", e.Status)
	if text := http.StatusText(e.Status); text != "" {
		s += " " + text
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *StatusError) Unwrap() error { return e.Err }

// judgeAnswer reads ahead of the answer and judges it. Afterwards the answer's
// body is complete in memory, or what was read and then the rest of the stream;
// if it broke off there is no answer any more, because a caller that looks at the
// status alone would take it for one.
func (a *attempt) judgeAnswer(resp *http.Response) (*http.Response, retry.Verdict) {
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	data, whole, err := readAhead(resp.Body, resp.ContentLength, a.ahead(resp))
	if !whole && err == nil && a.timer != nil && !a.timer.Stop() {
		err = a.call.Timeout() // The rest of the stream could not be read.
	}
	v := a.call.judge(resp, data)
	if err != nil {
		v = a.broken(v, resp, data, err)
		_ = resp.Body.Close() // It is broken already.
		a.release()
		return nil, v
	}
	if whole {
		_ = resp.Body.Close() // It was read to its end.
		a.release()
		if len(data) > 0 {
			a.answer.rest = data
			resp.Body = &a.answer
		} else {
			resp.Body = http.NoBody
		}
		return resp, v
	}
	resp.Body = a.stream(resp.Body, data)
	return resp, v
}

// ahead returns how much of the answer to read before it is believed.
func (a *attempt) ahead(resp *http.Response) int64 {
	limit := a.call.transport.maxBuffer()
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols || isEventStream(resp.Header.Get("Content-Type")):
		return 0
	case resp.StatusCode >= 400:
		return max(limit, errorBuffer)
	case resp.ContentLength > limit, resp.ContentLength <= 0 && a.call.safe:
		return 0
	default:
		return limit
	}
}

func isEventStream(contentType string) bool {
	const t = "text/event-stream"
	return len(contentType) >= len(t) && strings.EqualFold(contentType[:len(t)], t)
}

// readAhead reads r to its end, which is expected after length bytes if that is
// positive, but not far beyond limit; whole says that it met the end.
func readAhead(r io.Reader, length, limit int64) (data []byte, whole bool, err error) {
	if r == http.NoBody {
		return nil, true, nil
	}
	if limit <= 0 {
		return nil, false, nil
	}
	size := int64(bytes.MinRead)
	if length > 0 {
		size = length
	}
	data = make([]byte, 0, min(size, limit, errorBuffer)+1) // One more, to meet the end.
	for int64(len(data)) <= limit {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, true, nil
		}
		if err != nil {
			return data, false, err
		}
	}
	return data, false, nil
}

// broken is the verdict on an answer that broke off. What would have been tried
// again is tried again for the same reason; no other status is believed, since
// only an answer that was read to its end is evidence.
func (a *attempt) broken(v retry.Verdict, resp *http.Response, data []byte, err error) retry.Verdict {
	if a.expired() {
		err = a.call.Timeout()
	}
	if v.Outcome == reprise.Succeeded || v.Outcome == reprise.Rejected || v.Final {
		v = retry.Verdict{Trigger: "truncated"}
	}
	v.Err = &StatusError{
		Status: resp.StatusCode, Header: resp.Header, Body: head(data),
		Err: fmt.Errorf("the answer broke off after %d bytes: %w", len(data), err),
	}
	return v
}

func head(data []byte) []byte { return data[:min(len(data), errorBuffer)] }

// discard gives up an answer, and leaves its connection usable if that is cheap.
func (a *attempt) discard(resp *http.Response) {
	if resp == nil || resp.Body == http.NoBody || resp.Body == &a.answer {
		return // It was read to its end.
	}
	late := time.AfterFunc(drainTime, func() { _ = resp.Body.Close() })
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes) // Only for its connection.
	late.Stop()
	_ = resp.Body.Close()
}

// buffered is a body in memory.
type buffered struct{ rest []byte }

func (b *buffered) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo.
func (b *buffered) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b.rest)
	b.rest = b.rest[n:]
	return int64(n), err
}

func (b *buffered) Close() error {
	b.rest = nil
	return nil
}

// stream returns the body of an answer whose rest is still to be read. The
// attempt's context lives until it is closed, or ends by itself.
func (a *attempt) stream(rest io.ReadCloser, read []byte) io.ReadCloser {
	s := &stream{Reader: rest, rest: rest, attempt: a}
	if len(read) > 0 {
		s.Reader = io.MultiReader(bytes.NewReader(read), rest)
	}
	if w, ok := rest.(io.Writer); ok { // After 101 Switching Protocols.
		return &duplex{s, w}
	}
	return s
}

type stream struct {
	io.Reader
	rest    io.Closer
	attempt *attempt
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		s.attempt.release()
	}
	return n, err
}

func (s *stream) Close() error {
	err := s.rest.Close()
	s.attempt.release()
	return err
}

type duplex struct {
	*stream
	io.Writer
}
