// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/retryhttp"
)

// TestOverhead keeps the number of allocations of docs/design.md; the bytes are
// measured by "go run ./bench client".
func TestOverhead(t *testing.T) {
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		return say(r, 200, `{"id":"ord_1"}`), nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	for _, row := range []struct {
		method, body string
		most         float64
	}{{"GET", "", 8}, {"POST", strings.Repeat("x", 1<<10), 12}} {
		count := func(rt http.RoundTripper) float64 {
			c := &http.Client{Transport: rt}
			return testing.AllocsPerRun(200, func() {
				resp, err := c.Do(request(t, row.method, "http://shop/", row.body).WithContext(ctx))
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
		}
		if more := count(&retryhttp.Transport{Base: base, Ledger: true}) - count(base); more > row.most {
			t.Errorf("%s: %v allocations more than net/http alone, want at most %v", row.method, more, row.most)
		}
	}
}
