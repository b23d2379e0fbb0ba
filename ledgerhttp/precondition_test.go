// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/wire"
)

func TestCheckIfMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		fields  []string
		current string
		want    reprise.Code
	}{
		{"no field", nil, `"1"`, reprise.CodePreconditionRequired},
		{"the tag", []string{`"1"`}, `"1"`, ""},
		{"one of a list", []string{`"0", "1"`}, `"1"`, ""},
		{"one of two lines", []string{`"0"`, `"1"`}, `"1"`, ""},
		{"a star", []string{`*`}, `"1"`, ""},
		{"a star for what does not exist", []string{`*`}, ``, reprise.CodePreconditionFailed},
		{"another tag", []string{`"2"`}, `"1"`, reprise.CodePreconditionFailed},
		{"a weak tag", []string{`W/"1"`}, `"1"`, reprise.CodePreconditionFailed},
		{"a tag for what does not exist", []string{`"1"`}, ``, reprise.CodePreconditionFailed},
		{"no quotes", []string{`1`}, `"1"`, reprise.CodeInvalid},
		{"nothing in it", []string{``}, `"1"`, reprise.CodeInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("PUT", "/", nil)
			r.Header["If-Match"] = c.fields
			err := ledgerhttp.CheckIfMatch(r, c.current)
			if reprise.CodeOf(err) != c.want {
				t.Errorf("got %v, want code %q", err, c.want)
			}
			if err != nil && reprise.OutcomeOf(err) == reprise.Unknown {
				t.Errorf("the outcome of %v is unknown", err)
			}
		})
	}
}

func TestPrecondition(t *testing.T) {
	t.Parallel()

	put := func(key, amount string) call {
		return post(key, `{"ref":"r","amount":`+amount+`}`).via("PUT").to("/orders/1")
	}
	start := func(t *testing.T) *shop {
		s := setup(t)
		s.send(post(newKey(), orderBody)).want(t, 201, "")
		return s
	}

	t.Run("W6 missing is 428 and failed is 412, and neither is stored", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		c := put(newKey(), "2000")
		s.send(c).want(t, 428, reprise.CodePreconditionRequired)
		s.send(c.with("If-Match", `"7"`)).want(t, 412, reprise.CodePreconditionFailed)
		s.send(c.with("If-Match", `W/"1"`)).want(t, 412, reprise.CodePreconditionFailed)
		s.send(c.with("If-Match", `1`)).want(t, 400, reprise.CodeInvalid)
		a := s.send(c.with("If-Match", `"1"`))
		a.want(t, 200, "")
		a.wantReplay(t, false)
		if a.header.Get("Etag") != `"2"` {
			t.Errorf("Etag is %s, want \"2\"", a.header.Get("Etag"))
		}
	})
	t.Run("W6 a repeat is answered before the precondition, also when it is missing", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		c := put(newKey(), "2000")
		first := s.send(c.with("If-Match", `"1"`))
		first.want(t, 200, "")
		// The version has moved on: by this request, and by another one.
		s.send(put("", "3000").with("If-Match", `"2"`)).want(t, 200, "")
		for _, again := range []call{c.with("If-Match", `"1"`), c, c.with("If-Match", `"3"`), c.with("If-Match", `*`)} {
			a := s.send(again)
			a.wantReplay(t, true)
			a.wantSame(t, first)
		}
		read := s.send(call{method: "GET", path: "/orders/1", caller: "ann"})
		if read.body != `{"amount":3000}` {
			t.Errorf("a repeat undid a later change: %s", read.body)
		}
	})
	t.Run("F6 If-Match is no part of what was asked", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		c := put(newKey(), "2000")
		s.send(c.with("If-Match", `"1"`)).want(t, 200, "")
		s.send(put(c.key, "2001").with("If-Match", `"1"`)).want(t, 422, reprise.CodeKeyReused)
	})
	t.Run("F2 one key on two resources is refused", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.send(post(newKey(), orderBody)).want(t, 201, "")
		c := put(newKey(), "2000").with("If-Match", `"1"`)
		s.send(c).want(t, 200, "")
		s.send(c.to("/orders/2")).want(t, 422, reprise.CodeKeyReused)
		read := s.send(call{method: "GET", path: "/orders/2", caller: "ann"})
		if read.body != `{"amount":1200}` {
			t.Errorf("order 2 was changed: %s", read.body)
		}
	})
	t.Run("without a key a repeat meets the precondition", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		c := put("", "2000").with("If-Match", `"1"`)
		s.send(c).want(t, 200, "")
		s.send(c).want(t, 412, reprise.CodePreconditionFailed)
	})
	t.Run("a resource that is not there is 404, and not stored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := put(newKey(), "2000").with("If-Match", `"1"`)
		s.send(c).want(t, 404, "not-found")
		s.send(post(newKey(), orderBody)).want(t, 201, "")
		a := s.send(c)
		a.want(t, 200, "")
		a.wantReplay(t, false)
	})
}

// TestPromisedPrecondition is about work of an operation that promises if-match
// and does not keep to it. Each of its effects is a row.
func TestPromisedPrecondition(t *testing.T) {
	t.Parallel()

	type work func(r *http.Request) (status int, err error)
	forgets := func(*http.Request) (int, error) { return http.StatusOK, nil }
	ignores := func(r *http.Request) (int, error) {
		_ = ledgerhttp.CheckIfMatch(r, `"1"`)
		return http.StatusOK, nil
	}
	compares := func(r *http.Request) (int, error) { return http.StatusOK, ledgerhttp.CheckIfMatch(r, `"1"`) }

	forms := map[string]func(*shop, *work) http.Handler{
		"Atomic": func(s *shop, do *work) http.Handler {
			return ledgerhttp.Atomic(s.server, "change-order", decodeChange,
				func(ctx context.Context, tx *sql.Tx, in change) (reprise.Result, error) {
					if _, err := insertOrder(ctx, tx, in.order); err != nil {
						return reprise.Result{}, err
					}
					status, err := (*do)(in.r)
					return reprise.Result{Status: status}, err
				})
		},
		"Middleware": func(s *shop, do *work) http.Handler {
			return s.server.Middleware("change-order")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.insert(r, "r")
				status, err := (*do)(r)
				if err != nil {
					wire.ProblemOf(err).Write(w)
					return
				}
				w.WriteHeader(status)
			}))
		},
	}
	for form, handler := range forms {
		start := func(t *testing.T, do *work, change ...func(*options)) *shop {
			s := setup(t, change...)
			s.replace(handler(s, do))
			return s
		}
		put := func(key string) call { return post(key, orderBody).via("PUT").to("/orders/1") }

		for what, bad := range map[string]work{"forgotten": forgets, "ignored": ignores} {
			t.Run("W6 "+form+": a comparison that is "+what+" keeps nothing, and the log says what to do", func(t *testing.T) {
				t.Parallel()
				do := bad
				s := start(t, &do)
				key := newKey()
				for _, c := range []call{put(key), put(""), put(key).with("If-Match", `"7"`), put("").with("If-Match", `"7"`)} {
					a := s.send(c)
					a.want(t, 500, reprise.CodeInternal)
					if a.header.Get(wire.HeaderRetryContext) != "processed=?0" {
						t.Errorf("the rollback is not told: %v", a.header)
					}
				}
				s.wantRows("r", 0)
				told := 0
				for line := range strings.Lines(s.log.String()) {
					if strings.Contains(line, "request failed") && strings.Contains(line, "operation=change-order") &&
						strings.Contains(line, "call CheckIfMatch inside the work") {
						told++
					}
				}
				if told != 4 {
					t.Errorf("the log says %d times what to do, want 4: %s", told, s.log)
				}

				do = compares // The key is free, and its answer then comes before any comparison.
				first := s.send(put(key).with("If-Match", `"1"`))
				first.want(t, 200, "")
				first.wantReplay(t, false)
				do = bad
				again := s.send(put(key))
				again.wantReplay(t, true)
				again.wantSame(t, first)
				s.wantRows("r", 1)
			})
		}
		t.Run("W6 "+form+": a decision against the request needs no comparison", func(t *testing.T) {
			t.Parallel()
			var do work = func(*http.Request) (int, error) { return http.StatusConflict, nil }
			s := start(t, &do)
			c := put(newKey())
			first := s.send(c)
			if first.status != 409 {
				t.Errorf("status %d, want 409: %s", first.status, first.body)
			}
			again := s.send(c)
			again.wantReplay(t, true)
			again.wantSame(t, first)
			s.wantRows("r", 1)
		})
		t.Run("W6 "+form+": a match of a run that was rolled back is none", func(t *testing.T) {
			t.Parallel()
			conflict, runs := 1, 0
			var do work = func(r *http.Request) (int, error) {
				if runs++; runs == 1 {
					return compares(r)
				}
				return forgets(r)
			}
			s := start(t, &do, func(o *options) {
				o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &conflicts{d, &conflict} }
			})
			s.send(put(newKey()).with("If-Match", `"1"`)).want(t, 500, reprise.CodeInternal)
			if conflict != 0 || runs != 2 {
				t.Errorf("%d runs with %d conflicts to come, want 2 and 0", runs, conflict)
			}
			s.wantRows("r", 0)
		})
	}
}
