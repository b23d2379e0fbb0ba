// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// spool is content that can be read only once. What attempts read of it is kept,
// up to max bytes; a later attempt reads that first and then goes on with the
// source. Nothing is read before an attempt asks for it, so that a source which
// waits for the answer, as a pipe may, is sent as it would be without a spool.
type spool struct {
	source io.ReadCloser
	max    int64

	// reading is held during a read of the source, which may block for long, and
	// taken before mu.
	reading sync.Mutex

	mu    sync.Mutex
	kept  []byte
	total int64 // Bytes that were read of the source.
	err   error // How it ended.
	last  *spoolReader
	refs  int
}

var (
	errForgotten = errors.New("an earlier attempt has read more of it than MaxSpool keeps")
	errReplaced  = errors.New("retryhttp: the attempt that this content is for was given up")
)

// spent says why the content can't be read from its beginning any more.
func (s *spool) spent() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil && !errors.Is(s.err, io.EOF):
		return fmt.Errorf("it could not be read: %w", s.err)
	case s.total > int64(len(s.kept)):
		return fmt.Errorf("%w, %d bytes", errForgotten, max(s.max, 0))
	}
	return nil
}

// open returns a reader for the next attempt. Those of earlier ones read no more.
func (s *spool) open() (io.ReadCloser, error) {
	if err := s.spent(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs++
	s.last = &spoolReader{spool: s}
	return &part{Reader: s.last, done: s.release}, nil
}

func (s *spool) release() {
	s.mu.Lock()
	s.refs--
	unused := s.refs == 0
	s.mu.Unlock()
	if unused {
		_ = s.source.Close() // It was only read.
	}
}

// spoolReader is one attempt's place in a spool.
type spoolReader struct {
	spool  *spool
	offset int64
}

func (r *spoolReader) Read(p []byte) (int, error) {
	s := r.spool
	s.reading.Lock()
	defer s.reading.Unlock()
	if n, done, err := r.readKept(p); done {
		return n, err
	}
	n, err := s.source.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.total += int64(n)
	if s.total <= s.max {
		s.kept = append(s.kept, p[:n]...)
	} else {
		s.kept = nil
	}
	if s.last != r {
		return 0, errReplaced
	}
	r.offset += int64(n)
	return n, err
}

// readKept reads what needs no read of the source. done is false if there is no
// such thing.
func (r *spoolReader) readKept(p []byte) (n int, done bool, err error) {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last != r:
		return 0, true, errReplaced
	case r.offset < int64(len(s.kept)):
		n = copy(p, s.kept[r.offset:])
		r.offset += int64(n)
		return n, true, nil
	case r.offset < s.total:
		return 0, true, errForgotten
	default:
		return 0, s.err != nil, s.err
	}
}
