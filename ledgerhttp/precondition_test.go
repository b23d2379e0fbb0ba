// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"net/http/httptest"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
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
