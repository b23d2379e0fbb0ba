// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// benchmark serves POST /orders from many goroutines, without a socket.
func benchmark(b *testing.B, key func(n int) string, want int) {
	b.Helper()
	s := setup(b)
	h := s.http.Config.Handler
	serve := func(key string) int {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader(orderBody))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer dev-ann")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			b.Errorf("status %d: %s", w.Code, w.Body)
		}
		return w.Code
	}
	serve("first")
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		serve(key(n))
	}
	b.StopTimer()
	if got := s.rows("r"); got != want*b.N+1 {
		b.Errorf("%d rows after %d requests", got, b.N)
	}
}

// BenchmarkFresh makes an order under a new key each time.
func BenchmarkFresh(b *testing.B) {
	benchmark(b, func(n int) string { return "key-" + strconv.Itoa(n) }, 1)
}

// BenchmarkReplay asks for the same order each time.
func BenchmarkReplay(b *testing.B) { benchmark(b, func(int) string { return "first" }, 0) }
