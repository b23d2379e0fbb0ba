// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/wire"
)

// insert writes a row in the transaction of a request under Middleware.
func (s *shop) insert(r *http.Request, ref string) {
	s.runs.Add(1)
	tx, ok := ledgerhttp.Tx[*sql.Tx](r.Context())
	if !ok {
		s.t.Error("no transaction in the context")
		return
	}
	if _, err := insertOrder(r.Context(), tx, order{caller: "ann", Ref: ref}); err != nil {
		s.t.Error(err)
	}
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	wrapped := func(key string) call { return post(key, orderBody).to("/wrapped") }

	t.Run("L1 L2 a handler runs once, and its response is repeated", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "made by %s", r.Header.Get("X-Client"))
		})
		c := wrapped(newKey())
		first := s.send(c.with("X-Client", "one"))
		if first.status != 201 || first.body != "made by one" {
			t.Fatalf("got %d %q", first.status, first.body)
		}
		again := s.send(c.with("X-Client", "two"))
		again.wantReplay(t, true)
		again.wantSame(t, first)
		s.wantRows("r", 1)
		s.send(post(c.key, `{}`).to("/wrapped")).want(t, 422, reprise.CodeKeyReused)
	})
	t.Run("the body can be read, and again on every run", func(t *testing.T) {
		t.Parallel()
		fail := 2
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &conflicts{d, &fail} }
		})
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			body, err := io.ReadAll(r.Body)
			check(t, err)
			w.Header().Add("Vary", "Accept") // Would pile up if runs shared a header.
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%d %s", r.ContentLength, body)
		})
		a := s.send(wrapped(newKey()))
		if want := fmt.Sprintf("%d %s", len(orderBody), orderBody); a.status != 201 || a.body != want {
			t.Errorf("got %d %q, want 201 %q", a.status, a.body, want)
		}
		if fail != 0 || s.runs.Load() != 3 {
			t.Fatalf("%d runs with %d conflicts to come, want 3 and 0", s.runs.Load(), fail)
		}
		if got := a.header["Vary"]; len(got) != 1 {
			t.Errorf("Vary is %q", got)
		}
		s.wantRows("r", 1)
	})
	t.Run("a form can be parsed", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			check(t, r.ParseForm())
			s.insert(r, r.PostForm.Get("ref"))
		})
		c := wrapped(newKey())
		c.body = "ref=r&amount=1"
		c = c.with("Content-Type", "application/x-www-form-urlencoded")
		s.send(c).want(t, 200, "")
		c.body = "amount=1&ref=r"
		s.send(c).wantReplay(t, true)
		s.wantRows("r", 1)
	})
	t.Run("files of a multipart form are removed", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		var spooled string
		s.wrap(func(_ http.ResponseWriter, r *http.Request) {
			check(t, r.ParseMultipartForm(1)) // Everything goes to disk.
			f, err := r.MultipartForm.File["f"][0].Open()
			check(t, err)
			defer f.Close()
			spooled = f.(*os.File).Name()
			_, err = os.Stat(spooled)
			check(t, err)
		})
		c := wrapped(newKey()).with("Content-Type", "multipart/form-data; boundary=b")
		c.body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nsome bytes\r\n--b--\r\n"
		s.send(c).want(t, 200, "")
		if _, err := os.Stat(spooled); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q is still there: %v", spooled, err)
		}
	})
	t.Run("L14 what is stored and what is not", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			status int
			stored bool
		}{
			{200, true}, {201, true}, {202, true}, {204, true}, {303, true}, {402, true}, {409, true}, {410, true}, {422, true}, {451, true},
			{400, false}, {401, false}, {403, false}, {404, false}, {405, false}, {408, false}, {412, false}, {413, false}, {415, false},
			{425, false}, {428, false}, {429, false}, {431, false}, {500, false}, {501, false}, {502, false}, {503, false}, {504, false},
		} {
			t.Run(fmt.Sprint(c.status), func(t *testing.T) {
				t.Parallel()
				s := setup(t)
				s.wrap(func(w http.ResponseWriter, r *http.Request) {
					s.insert(r, "r")
					w.Header().Set("X-Live", "yes")
					w.WriteHeader(c.status)
					if c.status != 204 {
						fmt.Fprintf(w, "run %d", s.runs.Load())
					}
				})
				request := wrapped(newKey())
				first := s.send(request)
				if first.status != c.status || first.header.Get("X-Live") != "yes" || c.status != 204 && first.body != "run 1" {
					t.Fatalf("the first answer is not the handler's: %d %q %v", first.status, first.body, first.header)
				}
				again := s.send(request)
				if again.status != c.status {
					t.Errorf("again %d, want %d", again.status, c.status)
				}
				again.wantReplay(t, c.stored)
				runs, rows := int64(2), 0
				if c.stored {
					runs, rows = 1, 1
				}
				if s.runs.Load() != runs {
					t.Errorf("the handler ran %d times, want %d", s.runs.Load(), runs)
				}
				if stored := first.header.Get(wire.HeaderExpires) != ""; stored != c.stored {
					t.Errorf("%s present: %v", wire.HeaderExpires, stored)
				}
				s.wantRows("r", rows)
			})
		}
	})
	t.Run("a handler that says nothing answers 200, and is stored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(_ http.ResponseWriter, r *http.Request) { s.insert(r, "r") })
		c := wrapped(newKey())
		first := s.send(c)
		if first.status != 200 || first.body != "" || first.header.Get("Content-Length") != "0" {
			t.Errorf("got %d %q %v", first.status, first.body, first.header)
		}
		s.send(c).wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("103 and then 201 is 201, now and on repeats", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		})
		c := wrapped(newKey())
		first := s.send(c)
		first.want(t, 201, "")
		s.send(c).wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("101 keeps nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.WriteHeader(http.StatusSwitchingProtocols)
		})
		s.send(wrapped(newKey())).want(t, 500, reprise.CodeInternal)
		s.wantRows("r", 0)
	})
	t.Run("L3 nothing is sent before COMMIT", func(t *testing.T) {
		t.Parallel()
		refused := false
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &fullDisk{d, &refused} }
		})
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
			_ = http.NewResponseController(w).Flush()
		})
		a := s.send(wrapped(newKey()))
		a.want(t, 503, reprise.CodeStoreUnavailable)
		if !refused {
			t.Fatal("the fault did not fire")
		}
		if strings.Contains(a.body, "x") && strings.Contains(a.body, "xxx") {
			t.Error("a response that was rolled back was sent")
		}
		s.wantRows("r", 0)
	})
	t.Run("L8 a response over the cap is whole, once, and never made again", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.ledger.MaxBody = 1 << 10 })
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			for range 10 << 10 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1<<10))
			}
		})
		c := wrapped(newKey())
		first := s.send(c)
		if first.status != 201 || len(first.body) != 10<<20 {
			t.Errorf("got %d and %d bytes, want 201 and 10 MiB", first.status, len(first.body))
		}
		for range 2 {
			again := s.send(c)
			again.want(t, 410, reprise.CodeKeyExpired)
			if !strings.Contains(again.body, `"/orders/1"`) {
				t.Errorf("the refusal does not name the result: %s", again.body)
			}
		}
		s.wantRows("r", 1)
		if s.runs.Load() != 1 {
			t.Errorf("the handler ran %d times", s.runs.Load())
		}
	})
	t.Run("L8 a response that can't be held is rolled back, and nothing of it is sent", func(t *testing.T) {
		t.Parallel()
		const limit = 64 << 10
		s := setup(t, func(o *options) { o.server.MaxResponse = limit })
		long := true
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, strings.Repeat("x", limit))
			if long {
				_, _ = io.WriteString(w, "x") // A handler that looks at no error.
			}
		})
		c := wrapped(newKey())
		for range 2 {
			a := s.send(c)
			a.want(t, 500, reprise.CodeInternal)
			if strings.Contains(a.body, "xx") || a.header.Get("Location") != "" || a.header.Get(wire.HeaderRetryContext) != "processed=?0" {
				t.Errorf("half of a response was sent: %v %q", a.header, a.body)
			}
		}
		s.wantRows("r", 0)
		if log := s.log.String(); !strings.Contains(log, "Config.MaxResponse") {
			t.Errorf("the log does not say what to do: %s", log)
		}
		long = false
		first := s.send(c)
		if first.status != 201 || len(first.body) != limit {
			t.Errorf("got %d and %d bytes, want 201 and %d", first.status, len(first.body), limit)
		}
		s.send(c).wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("L12 a panic keeps nothing and frees the key", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		})
		c := wrapped(newKey())
		if a, err := s.try(c); err == nil {
			t.Errorf("a panic was answered %d %q", a.status, a.body)
		}
		s.wantRows("r", 0)
		s.wrap(func(_ http.ResponseWriter, r *http.Request) { s.insert(r, "r") })
		s.send(c).want(t, 200, "")
		s.wantRows("r", 1)
	})
	t.Run("a panic that somebody recovers is never a 200", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		panics := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.WriteHeader(http.StatusCreated)
			panic("boom")
		})
		s.replace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not come out")
				}
			}()
			s.server.Middleware("wrapped")(panics).ServeHTTP(w, r)
		}))
		a := s.send(wrapped(newKey()))
		a.want(t, 500, reprise.CodeInternal)
		if a.header.Get(wire.HeaderRetryContext) != "processed=?0" {
			t.Errorf("the rollback is not told: %v", a.header)
		}
		s.wantRows("r", 0)
	})
	t.Run("without a key it runs each time, in its own transaction", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		status := http.StatusCreated
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.WriteHeader(status)
		})
		c := post("", orderBody).to("/wrapped-notes")
		s.send(c).want(t, 201, "")
		s.send(c).want(t, 201, "")
		s.wantRows("r", 2)
		status = http.StatusInternalServerError
		s.send(c).want(t, 500, "")
		s.wantRows("r", 2)
		s.send(post("", orderBody).to("/wrapped")).want(t, 400, reprise.CodeKeyMissing)
	})
	t.Run("F3 content that can't be compared is refused before the handler", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(_ http.ResponseWriter, r *http.Request) { s.insert(r, "r") })
		for _, body := range []string{`{"ref":`, `{"ref":"a","ref":"b"}`} {
			s.send(post(newKey(), body).to("/wrapped")).want(t, 400, reprise.CodeInvalid)
		}
		s.wantRows("r", 0)
	})
	t.Run("the transaction is only there for its own type", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		if _, ok := ledgerhttp.Tx[*sql.Tx](t.Context()); ok {
			t.Error("a transaction out of nowhere")
		}
		s.wrap(func(_ http.ResponseWriter, r *http.Request) {
			if _, ok := ledgerhttp.Tx[*sql.Conn](r.Context()); ok {
				t.Error("a transaction of another type")
			}
		})
		s.send(wrapped(newKey())).want(t, 200, "")
	})
}

// conflicts makes the first attempts lose a conflict after their work.
type conflicts struct {
	store.Driver[*sql.Tx]
	left *int
}

func (d *conflicts) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, *sql.Tx) (store.Completion, error),
) (store.Entry, bool, error) {
	lost := errors.New("lost")
	e, executed, err := d.Driver.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		completion, err := work(ctx, tx)
		if err == nil && *d.left > 0 {
			*d.left--
			return completion, lost
		}
		return completion, err
	})
	if errors.Is(err, lost) {
		err = store.ErrConflict
	}
	return e, executed, err
}

// fullDisk fails each COMMIT for certain.
type fullDisk struct {
	store.Driver[*sql.Tx]
	fired *bool
}

func (d *fullDisk) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, *sql.Tx) (store.Completion, error),
) (store.Entry, bool, error) {
	full := errors.New("disk full")
	e, executed, err := d.Driver.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		if completion, err := work(ctx, tx); err != nil {
			return completion, err
		}
		*d.fired = true
		return store.Completion{}, full
	})
	if errors.Is(err, full) {
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, full)
	}
	return e, executed, err
}
