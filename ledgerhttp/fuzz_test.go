// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reprise-go/reprise/wire"
)

// FuzzRequest sends arbitrary bytes as a request. Whatever they are, the service
// neither fails nor panics, and an order is made exactly where it says so.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		head("k", withLength(len(orderBody))) + orderBody,
		head(`"quoted"`, withLength(len(orderBody))) + orderBody,
		head(`"`, withLength(len(orderBody))) + orderBody,
		head("k", "Transfer-Encoding: chunked") + "19\r\n" + orderBody + " \r\n0\r\n\r\n",
		head("k", "Idempotency-Key: k", withLength(2)) + "{}",
		head("k", "Content-Encoding: gzip", withLength(4)) + "\x1f\x8b\x08\x00",
		head("k", "Retry-Context: attempt=2, max=4", "Early-Data: 1", withLength(3)) + "[{}",
		head("k", withLength(40)) + `{"ref":"\ud83d\ude00","amount":1.2e3}    `,
		head("k", withLength(12)) + `{"ref":null}`,
		"PUT /orders/1 HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nIf-Match: \"1\", W/\"2\"\r\nContent-Length: 12\r\n\r\n{\"amount\":1}",
		"POST /notes?b=%zz&a=1 HTTP/1.0\r\nContent-Type: application/vnd.x+json;charset=utf-8\r\nContent-Length: 2\r\n\r\n{}",
		"GET /orders/1 HTTP/1.1\r\nHost: shop\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	s := setup(f)
	count := func(t *testing.T) (n int) {
		t.Helper()
		check(t, s.db.QueryRow(`SELECT count(*) FROM orders`).Scan(&n))
		return n
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		r.Header.Set("Authorization", "Bearer dev-ann")
		before := count(t)
		w := httptest.NewRecorder()
		s.http.Config.Handler.ServeHTTP(w, r)
		made := count(t) - before

		want := 0
		if w.Code == http.StatusCreated && w.Header().Get(wire.HeaderReplayed) == "" {
			want = 1
		}
		if made != want {
			t.Errorf("status %d with %d new rows: %q", w.Code, made, raw)
		}
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("status %d: %s\n%q\n%s", w.Code, w.Body, raw, s.log)
		}
	})
}
