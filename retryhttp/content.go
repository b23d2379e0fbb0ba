// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"sync"
)

// content is where the content of a call's request comes from. Every attempt
// reads it through a reader of its own, because net/http may still be reading
// for an earlier attempt: a shared reader that is rewound loses bytes without an
// error.
//
// One of its fields is set when the request has no GetBody to ask.
type content struct {
	file  *file
	spool *spool
}

// contentError is why an attempt could not be given its content.
type contentError struct{ err error }

func (e *contentError) Error() string { return e.err.Error() }
func (e *contentError) Unwrap() error { return e.err }

// init looks at the request's body. It reads nothing.
func (c *content) init(req *http.Request, maxSpool int64) error {
	if !hasContent(req) || req.GetBody != nil {
		return nil
	}
	f, err := openFile(req.Body, req.ContentLength)
	switch {
	case err != nil:
		return err
	case f != nil:
		c.file = f
	default:
		c.spool = &spool{source: req.Body, max: maxSpool, refs: 1}
	}
	return nil
}

func hasContent(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// open returns a reader for the nth attempt at req, nil without content, and the
// Content-Length. Whoever gets the reader closes it.
func (c *content) open(req *http.Request, n int) (body io.ReadCloser, length int64, err error) {
	if !hasContent(req) {
		return nil, 0, nil
	}
	switch {
	case c.file != nil:
		body, err = c.file.open()
		return body, c.file.size, err
	case c.spool != nil:
		body, err = c.spool.open()
	case n == 1:
		body = req.Body
	default:
		body, err = req.GetBody()
	}
	return body, req.ContentLength, err
}

// getBody returns a function to read the content once more, or nil if it can be
// read only once.
func (c *content) getBody(req *http.Request) func() (io.ReadCloser, error) {
	switch {
	case !hasContent(req) || c.spool != nil:
		return nil
	case c.file != nil:
		return c.file.open
	default:
		return req.GetBody
	}
}

// spent says why there can't be another attempt; nil if there can.
func (c *content) spent() error {
	if c.spool != nil {
		return c.spool.spent()
	}
	return nil
}

// done is called when no attempt will be made any more. The last one's reader
// may still be in use. If there was none, the caller's body is still open.
func (c *content) done(req *http.Request, attempts bool) {
	switch {
	case c.file != nil:
		c.file.release()
	case c.spool != nil:
		c.spool.release()
	case !attempts:
		closeBody(req)
	}
}

// file is content that can be read at any place: an *os.File, or something like
// it. It is closed once, by the last one who holds it.
type file struct {
	source interface {
		io.ReaderAt
		io.Closer
	}
	offset, size int64
	info         fs.FileInfo // When the call began; nil if there is none.

	mu   sync.Mutex
	refs int
}

// errChanged is why a file is not sent again.
var errChanged = errors.New("the file has changed since the call began; its content under the same key would be another request")

// openFile returns nil if body is no file, or one such as a pipe that can only be
// read forward.
func openFile(body io.ReadCloser, length int64) (*file, error) {
	source, ok := body.(interface {
		io.ReadCloser
		io.ReaderAt
		io.Seeker
	})
	if !ok {
		return nil, nil
	}
	f := &file{source: source, refs: 1}
	var err error
	if f.offset, err = source.Seek(0, io.SeekCurrent); err != nil {
		return nil, nil //nolint:nilerr // It can't be sought.
	}
	if f.info, err = stat(body); err != nil {
		return nil, err
	}
	var end int64
	if f.info != nil {
		if !f.info.Mode().IsRegular() {
			return nil, nil
		}
		end = f.info.Size()
	} else {
		end, err = source.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = source.Seek(f.offset, io.SeekStart)
		}
		if err != nil {
			return nil, err
		}
	}
	f.size = max(end-f.offset, 0)
	if length > 0 {
		f.size = length
	}
	return f, nil
}

// stat returns nil for something that is like a file and knows nothing of itself.
func stat(source any) (fs.FileInfo, error) {
	s, ok := source.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return nil, nil
	}
	return s.Stat()
}

func (f *file) open() (io.ReadCloser, error) {
	info, err := stat(f.source)
	if err != nil {
		return nil, err
	}
	if info != nil && (!info.ModTime().Equal(f.info.ModTime()) || info.Size() != f.info.Size()) {
		return nil, errChanged
	}
	if f.size == 0 {
		return http.NoBody, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refs++
	return &part{Reader: io.NewSectionReader(f.source, f.offset, f.size), done: f.release}, nil
}

func (f *file) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refs--; f.refs == 0 {
		_ = f.source.Close() // It was only read.
	}
}

// part is one attempt's reader.
type part struct {
	io.Reader
	once sync.Once
	done func()
}

func (p *part) Close() error {
	p.once.Do(p.done)
	return nil
}
