// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestRecorder(t *testing.T) {
	t.Parallel()

	type outcome struct {
		*recorder
		misuse []string
	}
	record := func(h http.HandlerFunc) *outcome {
		var o outcome
		o.recorder = newRecorder(http.Header{"X-Outer": {"1"}}, 1<<10, func(s string) { o.misuse = append(o.misuse, s) })
		o.run(h, httptest.NewRequest(http.MethodPost, "/", nil))
		return &o
	}

	t.Run("no Write is 200", func(t *testing.T) {
		t.Parallel()
		o := record(func(http.ResponseWriter, *http.Request) {})
		if r := o.result(); r.Status != 200 || len(r.Body) != 0 {
			t.Errorf("got %d %q, want 200 and no body", r.Status, r.Body)
		}
	})
	t.Run("a Write without a status is 200", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		if r := o.result(); r.Status != 200 || string(r.Body) != "hello" {
			t.Errorf("got %d %q", r.Status, r.Body)
		}
	})
	t.Run("103 and then 201 is 201", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
		})
		r := o.result()
		if r.Status != 201 || r.Reference != "/orders/1" || len(r.Header["Link"]) != 0 {
			t.Errorf("got %+v", r)
		}
		if len(o.misuse) != 0 {
			t.Errorf("misuse was reported: %q", o.misuse)
		}
	})
	t.Run("the first status stays", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusInternalServerError)
		})
		if r := o.result(); r.Status != 201 {
			t.Errorf("got %d, want 201", r.Status)
		}
		if !slices.Equal(o.misuse, []string{"superfluous WriteHeader call"}) {
			t.Errorf("got misuse %q", o.misuse)
		}
	})
	t.Run("fields set after the status don't count", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Vary", "Accept")
			w.WriteHeader(http.StatusCreated)
			w.Header().Add("Vary", "Origin")
			w.Header().Set("Etag", `"2"`)
		})
		if r := o.result(); !slices.Equal(r.Header["Vary"], []string{"Accept"}) || r.Header["Etag"] != nil {
			t.Errorf("got header %v", r.Header)
		}
	})
	t.Run("fields of outer handlers are seen and kept", func(t *testing.T) {
		t.Parallel()
		var seen string
		o := record(func(w http.ResponseWriter, _ *http.Request) { seen = w.Header().Get("X-Outer") })
		h := http.Header{"X-Outer": {"1"}, "X-Gone": {"1"}}
		o.replace(h)
		if seen != "1" || !maps.EqualFunc(h, http.Header{"X-Outer": {"1"}}, slices.Equal) {
			t.Errorf("seen %q, header %v", seen, h)
		}
	})
	t.Run("a status that is none panics, as in net/http", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{-1, 0, 99, 1000} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("WriteHeader(%d) did not panic", status)
					}
				}()
				newRecorder(nil, 1<<10, nil).WriteHeader(status)
			}()
		}
	})
	t.Run("204 and 304 take no body", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{204, 304} {
			o := record(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
					t.Errorf("%d: Write returned %v", status, err)
				}
			})
			if r := o.result(); r.Status != status || len(r.Body) != 0 {
				t.Errorf("got %d %q", r.Status, r.Body)
			}
		}
	})
	t.Run("a body of the limit is whole, and of one that is longer nothing is held", func(t *testing.T) {
		t.Parallel()
		const limit = 1 << 10
		for _, c := range []struct {
			writes []int
			over   bool
		}{
			{[]int{limit}, false},
			{[]int{limit - 1, 1, 0}, false},
			{[]int{limit + 1}, true},
			{[]int{limit, 1}, true},
			{[]int{1, limit, 1}, true}, // The last one would fit, and the body would have a hole.
		} {
			var errs []error
			o := record(func(w http.ResponseWriter, _ *http.Request) {
				for _, n := range c.writes {
					_, err := w.Write(make([]byte, n))
					errs = append(errs, err)
				}
			})
			if last := errs[len(errs)-1]; (last != nil) != c.over || (o.excess != nil) != c.over || !errors.Is(last, o.excess) {
				t.Errorf("%v: the writes returned %v, and the recorder says %v", c.writes, errs, o.excess)
			}
			if held := o.body.Len(); c.over && held != 0 || !c.over && held != limit {
				t.Errorf("%v: %d bytes are held", c.writes, held)
			}
		}
	})
	t.Run("a guessed Content-Type is pinned", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
		if got := o.result().Header["Content-Type"]; !slices.Equal(got, []string{"text/html; charset=utf-8"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("nothing is guessed for a suppressed type or coded content", func(t *testing.T) {
		t.Parallel()
		for _, prepare := range []func(http.Header){
			func(h http.Header) { h["Content-Type"] = nil },
			func(h http.Header) { h.Set("Content-Encoding", "gzip") },
		} {
			o := record(func(w http.ResponseWriter, _ *http.Request) {
				prepare(w.Header())
				_, _ = io.WriteString(w, "<html>")
			})
			if got := o.result().Header["Content-Type"]; len(got) != 0 {
				t.Errorf("got %q", got)
			}
		}
	})
	t.Run("SEC-10 framing and our own fields are dropped", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range []string{
				"Content-Length", "Transfer-Encoding", "Trailer", "Upgrade", "Keep-Alive", "TE",
				"Idempotent-Replayed", "Idempotency-Expires", http.TrailerPrefix + "X",
			} {
				w.Header().Set(name, "1")
			}
		})
		if h := o.result().Header; len(h) != 1 || len(h["X-Outer"]) != 1 {
			t.Errorf("left over: %v", h)
		}
	})
	t.Run("flushing and hijacking fail, and say why", func(t *testing.T) {
		t.Parallel()
		o := record(func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			_, _, hijack := c.Hijack()
			for what, err := range map[string]error{
				"Flush": c.Flush(), "Hijack": hijack, "EnableFullDuplex": c.EnableFullDuplex(),
			} {
				if !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("%s returned %v", what, err)
				}
			}
			if err := c.Flush(); !strings.Contains(err.Error(), "until COMMIT") {
				t.Errorf("Flush says %q", err)
			}
			if _, ok := w.(http.Flusher); ok {
				t.Error("the recorder promises to flush")
			}
			if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
				t.Error("the recorder shows what is beneath")
			}
		})
		if o.status != 200 {
			t.Errorf("got status %d", o.status)
		}
	})
	t.Run("a write after the handler fails, and says why", func(t *testing.T) {
		t.Parallel()
		var late http.ResponseWriter
		o := record(func(w http.ResponseWriter, _ *http.Request) { late = w })
		late.WriteHeader(http.StatusInternalServerError)
		if _, err := io.WriteString(late, "late"); !errors.Is(err, errAnswered) {
			t.Errorf("Write returned %v", err)
		}
		if r := o.result(); r.Status != 200 || len(r.Body) != 0 {
			t.Errorf("the answer changed to %d %q", r.Status, r.Body)
		}
		if len(o.misuse) != 1 {
			t.Errorf("got misuse %q", o.misuse)
		}
	})
}
