// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

const untouched = "Retry-Context: processed=?0"

// like is like a file, and knows no more than that.
type like struct {
	*bytes.Reader
	closed atomic.Int32
}

func (l *like) Close() error { l.closed.Add(1); return nil }

// tempFile returns an open file with content, and its path.
func tempFile(t *testing.T, content []byte) (*os.File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

// TestContent is about the content of requests that are sent more than once.
func TestContent(t *testing.T) {
	t.Parallel()

	// golang/go#30597, kubernetes/kubernetes#113933: libraries that rewind a shared reader lose bytes, with
	// 200 OK, because net/http still reads for the attempt that was refused.
	t.Run("1 MiB that is refused before it is read arrives whole", func(t *testing.T) {
		t.Parallel()
		content := make([]byte, 1<<20)
		for i := range content {
			content[i] = byte(rand.Uint32())
		}
		want := sha256.Sum256(content)
		file, path := tempFile(t, content)
		file.Close()
		for name, body := range map[string]func(t *testing.T) io.Reader{
			"bytes":       func(*testing.T) io.Reader { return bytes.NewReader(content) },
			"a file":      func(t *testing.T) io.Reader { f, _ := os.Open(path); return f },
			"like a file": func(*testing.T) io.Reader { return &like{Reader: bytes.NewReader(content)} },
			"a stream":    func(*testing.T) io.Reader { return io.MultiReader(bytes.NewReader(content)) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var refused, arrived, wrong atomic.Int32
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Retry-Context") == "attempt=1, max=8" {
						refused.Add(1)
						w.Header().Set("Retry-Context", "processed=?0")
						w.WriteHeader(503)
						return
					}
					got, err := io.ReadAll(r.Body)
					if err != nil {
						return // The client gave this attempt up, and knows it.
					}
					arrived.Add(1)
					if sha256.Sum256(got) != want {
						wrong.Add(1)
					}
				}))
				srv.Config.ErrorLog = quiet
				srv.Start()
				t.Cleanup(srv.Close)
				c := client(t, &retryhttp.Transport{
					Ledger: true, MaxSpool: 2 << 20,
					Policy: policy(t, retry.Options{MaxAttempts: 8, Deadline: time.Minute}),
				})
				const calls = 10
				for range calls {
					resp, e := give(t, c, must(http.NewRequest("POST", srv.URL, body(t))))
					if e != nil {
						t.Fatal(e)
					}
					resp.Body.Close()
				}
				if refused.Load() != calls || arrived.Load() != calls || wrong.Load() != 0 {
					t.Errorf("%d refused, %d arrived, %d of them wrong; want %d, %d, 0", refused.Load(), arrived.Load(), wrong.Load(), calls, calls)
				}
			})
		}
	})

	// refuseTwice is a server that proves twice that it did not act.
	refuseTwice := func(t *testing.T) *server {
		return serve(t, func(x exchange) bool {
			if x.n <= 2 {
				return x.answer(503, "", untouched)
			}
			return x.answer(201, "")
		})
	}
	check := func(t *testing.T, srv *server, want string, length int64) {
		t.Helper()
		in := srv.seen()
		if len(in) != 3 {
			t.Errorf("%d requests arrived, want 3", len(in))
		}
		for i, a := range in {
			if a.body != want || a.length != length {
				t.Errorf("request %d has %d bytes, Content-Length %d; want %d, %d", i+1, len(a.body), a.length, len(want), length)
			}
		}
	}

	t.Run("a file is sent from where it stands, with its length, and closed once", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		f, _ := tempFile(t, []byte("skip:content"))
		f.Seek(5, io.SeekStart)
		if _, e := give(t, client(t, &retryhttp.Transport{}), must(http.NewRequest("POST", srv.url, f))); e != nil {
			t.Fatal(e)
		}
		check(t, srv, "content", 7)
		until(t, func() bool { _, err := f.Stat(); return errors.Is(err, os.ErrClosed) })
	})

	t.Run("an empty file has no content", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		f, _ := tempFile(t, nil)
		if _, e := give(t, client(t, &retryhttp.Transport{}), must(http.NewRequest("POST", srv.url, f))); e != nil {
			t.Fatal(e)
		}
		check(t, srv, "", 0)
	})

	t.Run("something like a file is closed once", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		l := &like{Reader: bytes.NewReader([]byte("skip:content"))}
		l.Seek(5, io.SeekStart)
		if _, e := give(t, client(t, &retryhttp.Transport{}), must(http.NewRequest("POST", srv.url, l))); e != nil {
			t.Fatal(e)
		}
		check(t, srv, "content", 7)
		until(t, func() bool { return l.closed.Load() == 1 })
	})

	t.Run("CLI-02 a file that changes is not sent again", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		f, path := tempFile(t, []byte("ten pounds"))
		c := client(t, &retryhttp.Transport{OnAttempt: func(reprise.Attempt) {
			os.WriteFile(path, []byte("twenty pounds"), 0o600)
		}})
		_, e := give(t, c, must(http.NewRequest("POST", srv.url, f)))
		if e == nil || e.Reason != retry.ReasonBody || e.Outcome != reprise.NotProcessed || !strings.Contains(e.Error(), "the file has changed") {
			t.Errorf("%v", e)
		}
		if in := srv.seen(); len(in) != 1 || in[0].body != "ten pounds" {
			t.Errorf("arrived: %+v", in)
		}
	})

	t.Run("a pipe is no file", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() { io.WriteString(w, "piped"); w.Close() }()
		if _, e := give(t, client(t, &retryhttp.Transport{}), must(http.NewRequest("POST", srv.url, r))); e != nil {
			t.Fatal(e)
		}
		check(t, srv, "piped", -1)
	})

	t.Run("a stream is kept up to MaxSpool, and closed once", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		body := &counted{Reader: strings.NewReader("12345678")}
		r := must(http.NewRequest("POST", srv.url, body))
		r.ContentLength = 8
		if _, e := give(t, client(t, &retryhttp.Transport{MaxSpool: 8}), r); e != nil {
			t.Fatal(e)
		}
		check(t, srv, "12345678", 8)
		until(t, func() bool { return body.closed.Load() == 1 })
	})

	// databricks/databricks-sdk-java#872, hashicorp/go-retryablehttp#145: it was sent again as nothing, or kept as a whole in memory.
	t.Run("a longer stream has one attempt and says so", func(t *testing.T) {
		t.Parallel()
		for _, most := range []int64{7, -1} {
			srv := refuseTwice(t)
			body := &counted{Reader: strings.NewReader("12345678")}
			resp, e := give(t, client(t, &retryhttp.Transport{MaxSpool: most}), must(http.NewRequest("POST", srv.url, body)))
			if e == nil || e.Reason != retry.ReasonBody || resp.StatusCode != 503 || !strings.Contains(e.Error(), "MaxSpool") {
				t.Errorf("MaxSpool %d: %v", most, e)
			}
			if in := srv.seen(); len(in) != 1 || in[0].body != "12345678" {
				t.Errorf("arrived: %+v", in)
			}
			until(t, func() bool { return body.closed.Load() == 1 })
		}
	})

	t.Run("a longer stream that was not read yet is sent again", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool { return x.answer(201, "") })
		dials := 0
		var dialer net.Dialer
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials < 3 {
				return nil, errors.New("unreachable")
			}
			return dialer.DialContext(ctx, network, addr)
		}}
		t.Cleanup(base.CloseIdleConnections)
		c := client(t, &retryhttp.Transport{Base: base, MaxSpool: -1})
		if _, e := give(t, c, must(http.NewRequest("POST", srv.url, io.MultiReader(strings.NewReader("12345678"))))); e != nil {
			t.Fatal(e)
		}
		if in := srv.seen(); len(in) != 1 || in[0].body != "12345678" || dials != 3 {
			t.Errorf("arrived: %+v after %d dials", in, dials)
		}
	})

	t.Run("an attempt that was given up reads no more of a stream", func(t *testing.T) {
		t.Parallel()
		var first io.Reader
		var got []byte
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if first == nil {
				first = r.Body
				io.ReadFull(r.Body, make([]byte, 3))
				return say(r, 503, "", untouched), nil // While it goes on reading.
			}
			if n, err := first.Read(make([]byte, 3)); n != 0 || err == nil {
				t.Errorf("the first attempt reads %d bytes more, %v", n, err)
			}
			got, _ = io.ReadAll(r.Body)
			return say(r, 201, ""), nil
		})
		c := client(t, &retryhttp.Transport{Base: base, MaxSpool: 4}) // Which it would use up.
		if _, e := give(t, c, must(http.NewRequest("POST", "http://shop/", io.MultiReader(strings.NewReader("12345678"))))); e != nil {
			t.Fatal(e)
		}
		if string(got) != "12345678" {
			t.Errorf("the second attempt sends %q", got)
		}
	})

	t.Run("a stream that fails is not sent again", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("the disk is gone")
		srv := refuseTwice(t)
		r := must(http.NewRequest("PUT", srv.url, io.MultiReader(strings.NewReader("begin"), failing{broken})))
		_, e := give(t, client(t, &retryhttp.Transport{}), r)
		if e == nil || e.Reason != retry.ReasonBody || !errors.Is(e, broken) || len(e.Attempts) != 1 {
			t.Errorf("%v", e)
		}
	})

	t.Run("CLI-02 a GetBody that fails ends the call", func(t *testing.T) {
		t.Parallel()
		srv := refuseTwice(t)
		gone := errors.New("content is gone")
		r := request(t, "POST", srv.url, "content")
		r.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		_, e := give(t, client(t, &retryhttp.Transport{}), r)
		if e == nil || e.Reason != retry.ReasonBody || !errors.Is(e, gone) || e.Outcome != reprise.NotProcessed || len(srv.seen()) != 1 {
			t.Errorf("%v, %d arrived", e, len(srv.seen()))
		}
	})

	t.Run("a stream that waits for the answer is not waited for", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			io.ReadFull(r.Body, make([]byte, 5))
			w.Header().Set("Content-Length", "8")
			io.WriteString(w, "and then")
			http.NewResponseController(w).Flush()
			io.Copy(io.Discard, r.Body)
		}))
		t.Cleanup(srv.Close)
		pr, pw := io.Pipe()
		go io.WriteString(pw, "hello")
		resp, e := give(t, client(t, &retryhttp.Transport{}), must(http.NewRequest("POST", srv.URL, pr)))
		if e != nil {
			t.Fatal(e)
		}
		if got := read(t, resp); got != "and then" {
			t.Errorf("answer %q", got)
		}
		pw.Close()
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// until waits for something that another goroutine will do soon.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen within 10 s")
		}
	}
}
