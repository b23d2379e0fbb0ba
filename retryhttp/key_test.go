// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
	"github.com/reprise-go/reprise/wire"
)

// TestKey is about which key a call has: one, fixed before its first byte (rule
// K5, CLI-01).
func TestKey(t *testing.T) {
	t.Parallel()
	const expires = "Idempotency-Expires: Sat, 01 Jan 2028 00:00:00 GMT"
	// The server loses every first answer of a content.
	flaky := func(t *testing.T, fields ...string) *server {
		seen := map[string]bool{}
		return serve(t, func(x exchange) bool {
			id := x.header.Get("X-Call")
			if !seen[id] {
				seen[id] = true
				return x.reset()
			}
			return x.answer(201, "", fields...)
		})
	}
	keys := func(in []arrival) (keys []string) {
		for _, a := range in {
			keys = append(keys, strings.Join(a.header["Idempotency-Key"], "+"))
		}
		return keys
	}

	t.Run("K5 one key per call, the same in every attempt", func(t *testing.T) {
		t.Parallel()
		srv := flaky(t)
		c := client(t, &retryhttp.Transport{Ledger: true})
		for i := range 2 {
			if _, e := give(t, c, request(t, "POST", srv.url, "x", fmt.Sprintf("X-Call: %d", i))); e != nil {
				t.Fatal(e)
			}
		}
		got := keys(srv.seen())
		if len(got) != 4 || got[0] != got[1] || got[2] != got[3] || got[0] == got[2] {
			t.Fatalf("keys %q", got)
		}
		if key, err := wire.ReadKey(http.Header{"Idempotency-Key": {got[0]}}); err != nil {
			t.Error(err)
		} else if minted, ok := key.MintedAt(); !ok || time.Since(minted) > time.Minute {
			t.Errorf("%s is no new UUIDv7", key)
		}
	})

	t.Run("K5 the caller's key wins, as it is written", func(t *testing.T) {
		t.Parallel()
		srv := flaky(t)
		c := client(t, &retryhttp.Transport{Ledger: true})
		for i, row := range []struct{ field, context, want string }{
			{`bare-1`, "", `bare-1`},
			{`"quoted 1"`, "", `"quoted 1"`},
			{`field`, "context", `field`},
			{"", "context", `"context"`},
			{"", `with "quotes" and \`, `"with \"quotes\" and \\"`},
		} {
			r := request(t, "POST", srv.url, "x", fmt.Sprintf("X-Call: %d", i))
			if row.field != "" {
				r.Header.Set("Idempotency-Key", row.field)
			}
			if row.context != "" {
				r = r.WithContext(retryhttp.WithKey(r.Context(), reprise.Key(row.context)))
			}
			resp, e := give(t, c, r)
			if e != nil {
				t.Fatal(e)
			}
			if got := keys(srv.seen()[2*i:]); !slices.Equal(got, []string{row.want, row.want}) {
				t.Errorf("%+v: keys %q", row, got)
			}
			if a := retryhttp.Attempts(resp); a[0].Key == "" || a[0].Key != a[1].Key {
				t.Errorf("%+v: records %q and %q", row, a[0].Key, a[1].Key)
			}
		}
	})

	t.Run("K1 a key that is none is refused before anything is sent", func(t *testing.T) {
		t.Parallel()
		srv := flaky(t)
		rt := &retryhttp.Transport{Ledger: true}
		client(t, rt)
		for name, r := range map[string]*http.Request{
			"field":     request(t, "POST", srv.url, "x", "Idempotency-Key: a, b"),
			"two lines": request(t, "POST", srv.url, "x", "Idempotency-Key: a", "Idempotency-Key: b"),
			"context":   request(t, "POST", srv.url, "x").WithContext(retryhttp.WithKey(t.Context(), "kö")),
			"empty":     request(t, "POST", srv.url, "x").WithContext(retryhttp.WithKey(t.Context(), "")),
		} {
			body := &counted{Reader: strings.NewReader("x")}
			r.Body, r.GetBody = body, nil
			_, err := rt.RoundTrip(r)
			e, ok := errors.AsType[*retry.Error](err)
			if !ok || e.Outcome != reprise.NotProcessed || e.Reason != retry.ReasonFinal ||
				!errors.Is(err, reprise.ErrKeyInvalid) && !errors.Is(err, reprise.ErrKeyMissing) {
				t.Errorf("%s: %v", name, err)
			}
			if body.closed.Load() != 1 {
				t.Errorf("%s: the body was closed %d times", name, body.closed.Load())
			}
		}
		if n := len(srv.seen()); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	})

	t.Run("only operations with effects get a key", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool { return x.answer(200, "") })
		c := client(t, &retryhttp.Transport{Ledger: true})
		for _, row := range []struct {
			method  string
			context bool
			want    bool
		}{
			{"GET", false, false}, {"GET", true, false}, {"HEAD", true, false}, {"OPTIONS", true, false}, {"", true, false},
			{"PUT", false, false}, {"PUT", true, true}, {"DELETE", false, false}, {"DELETE", true, true},
			{"POST", false, true}, {"PATCH", false, true}, {"POST", true, true},
		} {
			r := request(t, row.method, srv.url, "")
			if row.context {
				r = r.WithContext(retryhttp.WithKey(r.Context(), "k"))
			}
			if _, e := give(t, c, r); e != nil {
				t.Fatal(e)
			}
			in := srv.seen()
			if got := in[len(in)-1].header.Get("Idempotency-Key"); (got != "") != row.want {
				t.Errorf("%+v: key %q", row, got)
			}
		}
	})

	t.Run("the caller's request is not changed", func(t *testing.T) {
		t.Parallel()
		srv := flaky(t)
		c := client(t, &retryhttp.Transport{Ledger: true, Prepare: func(r *http.Request) error {
			r.Header.Set("X-Call", "signed")
			r.Header["Accept"][0] = "changed"
			return nil
		}})
		r := request(t, "POST", srv.url, "x", "Accept: text/plain")
		before := r.Header.Clone()
		if _, e := give(t, c, r); e != nil {
			t.Fatal(e)
		}
		if len(r.Header) != len(before) || r.Header.Get("Accept") != "text/plain" {
			t.Errorf("header %v became %v", before, r.Header)
		}
	})

	t.Run("C8 the contract decides, not the method", func(t *testing.T) {
		t.Parallel()
		op := func(name reprise.Operation, method, path string, s contract.Safety, key ...contract.KeyRule) contract.Operation {
			o := contract.Operation{Name: name, Method: method, Path: path, Safety: s}
			for _, k := range key {
				o.Key, o.Mode = k, contract.Atomic
			}
			return o
		}
		k, err := contract.New(
			op("create", "POST", "/orders", contract.Keyed, contract.KeyRequired),
			op("pay", "POST", "/orders/{id}/payments", contract.Keyed, contract.KeyOptional),
			op("search", "POST", "/search", contract.Safe),
			op("replace", "POST", "/replace", contract.Idempotent),
			op("next", "PUT", "/counter", contract.Unsafe),
			op("put", "PUT", "/orders/{id}", contract.Idempotent, contract.KeyRequired),
			op("cancel", "DELETE", "/orders/{id}", contract.Idempotent, contract.KeyOptional),
			op("tag", "PUT", "/tags/{id}", contract.Idempotent),
		)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := k.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if k, err = contract.Parse(doc); err != nil { // As a client would have it.
			t.Fatal(err)
		}
		for _, row := range []struct {
			method, path string
			arrivals     int
			key          bool
		}{
			{"POST", "/orders", 2, true},
			{"POST", "/orders/a%2Fb/payments", 2, true},
			{"POST", "/search", 2, false},
			{"POST", "/replace", 2, false},
			{"PUT", "/counter", 1, false},
			{"PUT", "/orders/7", 2, true},
			{"DELETE", "/orders/7", 2, true},
			{"PUT", "/tags/7", 2, false},
			{"POST", "/unknown", 1, false},
			{"GET", "/unknown", 2, false},
		} {
			srv := flaky(t)
			c := client(t, &retryhttp.Transport{Contract: retryhttp.FromContract(k)})
			_, e := give(t, c, request(t, row.method, srv.url+row.path, ""))
			in := srv.seen()
			if len(in) != row.arrivals || (e == nil) != (row.arrivals == 2) {
				t.Errorf("%+v: arrived %d times, %v", row, len(in), e)
			}
			if got := keys(in); (got[0] != "") != row.key || got[len(got)-1] != got[0] {
				t.Errorf("%+v: keys %q", row, got)
			}
		}
	})

	t.Run("C10 an endpoint that has shown a ledger is known to keep one", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			if x.header.Get("X-Lose") != "" && x.n%2 == 0 {
				return x.reset()
			}
			return x.answer(201, "", expires)
		})
		c := client(t, &retryhttp.Transport{})
		const key = "Idempotency-Key: k"
		if _, e := give(t, c, request(t, "POST", srv.url+"/orders", "x", key)); e != nil {
			t.Fatal(e)
		}
		for _, row := range []struct {
			what, method, path string
			fields             []string
			resent             bool
		}{
			{"the same", "POST", "/orders", []string{key}, true},
			{"the same without a key", "POST", "/orders", nil, false},
			{"another path", "POST", "/coupons", []string{key}, false},
			{"another method", "PATCH", "/orders", []string{key}, false},
		} {
			before := len(srv.seen())
			if before%2 == 0 { // The next one must be even.
				give(t, c, request(t, "GET", srv.url+"/", ""))
				before++
			}
			_, e := give(t, c, request(t, row.method, srv.url+row.path, "x", append(row.fields, "X-Lose: 1")...))
			if n := len(srv.seen()) - before; n == 2 != row.resent || (e == nil) != row.resent {
				t.Errorf("%s: arrived %d times, %v", row.what, n, e)
			}
		}
	})

	t.Run("C10 endpoints without end are learned, those in use are kept and the others forgotten", func(t *testing.T) {
		t.Parallel()
		sent, lose := 0, false
		rt := &retryhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			if sent++; lose {
				lose = false
				return nil, errors.New("the connection broke")
			}
			return &http.Response{
				StatusCode: 201, Body: http.NoBody, Request: r,
				Header: http.Header{"Idempotency-Expires": {"Sat, 01 Jan 2028 00:00:00 GMT"}},
			}, nil
		})}
		c := client(t, rt)
		post := func(path string) *retry.Error {
			_, e := give(t, c, request(t, "POST", "http://shop.example"+path, "x", "Idempotency-Key: k"))
			return e
		}
		resent := func(path string) bool {
			sent, lose = 0, true
			e := post(path)
			if lose || (e == nil) != (sent == 2) {
				t.Fatalf("%s: sent %d times, lost: %v, %v", path, sent, !lose, e)
			}
			return sent == 2
		}
		const many = 3000 // Several times what is remembered.
		for i := range many {
			for _, path := range []string{"/coupons", fmt.Sprintf("/orders/%d/payments", i)} {
				if e := post(path); e != nil {
					t.Fatal(e)
				}
			}
		}
		if e := post("/orders"); e != nil {
			t.Fatal(e)
		}
		for path, want := range map[string]bool{
			"/orders": true, "/coupons": true, fmt.Sprintf("/orders/%d/payments", many-1): true, "/orders/0/payments": false,
		} {
			if got := resent(path); got != want {
				t.Errorf("%s: sent again is %v, want %v", path, got, want)
			}
		}
		if e := post("/orders/0/payments"); e != nil || !resent("/orders/0/payments") {
			t.Errorf("what was forgotten was not learned again: %v", e)
		}
	})

	// HTTP-24: the redirect may come after the effect.
	t.Run("K5 a redirected request keeps key and content", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{307, 308} {
			srv := serve(t, func(x exchange) bool {
				if x.n == 1 {
					return x.answer(status, "", "Location: /elsewhere")
				}
				if x.n == 2 {
					return x.reset()
				}
				return x.answer(201, "")
			})
			resp, e := give(t, client(t, &retryhttp.Transport{Ledger: true}), request(t, "POST", srv.url, "order"))
			if e != nil {
				t.Fatal(e)
			}
			resp.Body.Close()
			in := srv.seen()
			if k := keys(in); len(in) != 3 || k[0] == "" || k[0] != k[1] || k[1] != k[2] || in[2].body != "order" {
				t.Errorf("%d: keys %q of %d arrivals, content %q", status, k, len(in), in[len(in)-1].body)
			}
		}
	})

	t.Run("K5 see other asks for something else, without a key", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			if x.n == 1 {
				return x.answer(303, "", "Location: /result")
			}
			return x.answer(200, "result")
		})
		resp, e := give(t, client(t, &retryhttp.Transport{Ledger: true}), request(t, "POST", srv.url, "order"))
		if e != nil || read(t, resp) != "result" {
			t.Fatal(e)
		}
		if k := keys(srv.seen()); k[0] == "" || k[1] != "" {
			t.Errorf("keys %q", k)
		}
	})
}

// TestPrepare is about the hook that signs each attempt (boto/botocore#399, CLI-03).
func TestPrepare(t *testing.T) {
	t.Parallel()

	t.Run("each attempt is prepared anew, when key and content are fixed", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool {
			if x.n < 3 {
				return x.answer(503, "", untouched)
			}
			return x.answer(201, "")
		})
		n := 0
		c := client(t, &retryhttp.Transport{Ledger: true, Prepare: func(r *http.Request) error {
			n++
			body, err := r.GetBody()
			if err != nil {
				return err
			}
			content, _ := io.ReadAll(body)
			_, limited := r.Context().Deadline()
			r.Header.Set("Signature", fmt.Sprint(n, " ", r.Header.Get("Idempotency-Key"), " ", r.Header.Get("Retry-Context"), " ", string(content), " ", limited))
			return nil
		}})
		r := request(t, "POST", srv.url, "order").WithContext(retryhttp.WithKey(t.Context(), "k"))
		if _, e := give(t, c, r); e != nil {
			t.Fatal(e)
		}
		for i, a := range srv.seen() {
			want := fmt.Sprintf(`%d "k" attempt=%d, max=4 order true`, i+1, i+1)
			if got := a.header.Get("Signature"); got != want || a.body != "order" {
				t.Errorf("attempt %d: signature %q, want %q; content %q", i+1, got, want, a.body)
			}
		}
	})

	t.Run("what can't be signed is not sent", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(x exchange) bool { return x.answer(201, "") })
		noToken := errors.New("no token")
		n := 0
		c := client(t, &retryhttp.Transport{Prepare: func(*http.Request) error {
			if n++; n < 3 {
				return noToken
			}
			return nil
		}})
		body := &counted{Reader: strings.NewReader("x")}
		resp, e := give(t, c, must(http.NewRequest("POST", srv.url, body)))
		if e != nil {
			t.Fatal(e)
		}
		a := retryhttp.Attempts(resp)
		if len(a) != 3 || a[0].Outcome != reprise.NotProcessed || a[0].Sends != 0 || !errors.Is(a[0].Err, noToken) || a[1].Trigger != "prepare" {
			t.Errorf("%+v", a)
		}
		if n := len(srv.seen()); n != 1 {
			t.Errorf("arrived %d times", n)
		}
		until(t, func() bool { return body.closed.Load() == 1 })
	})
}
