// SPDX-License-Identifier: Apache-2.0

package psp_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
)

func TestList(t *testing.T) {
	t.Parallel()
	m := open(t, psp.Config{})
	const n = 7
	for i := range n {
		m.charge(fmt.Sprint("k", i), fmt.Sprint("r", i%2), int64(i+1))
	}

	t.Run("all pages, oldest first", func(t *testing.T) {
		for _, limit := range []int{1, 2, 3, n, n + 1} {
			all := m.charges(fmt.Sprint("limit=", limit))
			if len(all) != n {
				t.Fatalf("limit %d: %d charges; want %d", limit, len(all), n)
			}
			for i, c := range all {
				if c.Amount != int64(i+1) {
					t.Errorf("limit %d: charge %d has amount %d", limit, i, c.Amount)
				}
			}
		}
	})
	t.Run("by reference, over pages", func(t *testing.T) {
		m.count("r0", 4)
		if all := m.charges("reference=r1&limit=2"); len(all) != 3 {
			t.Errorf("%d charges of r1", len(all))
		}
	})
	t.Run("empty list for nothing", func(t *testing.T) {
		if r := m.do("GET", "/charges?reference=none", "", ""); r.status != 200 ||
			strings.TrimSpace(string(r.body)) != `{"items":[],"next":null}` {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("400 for a query where there is none", func(t *testing.T) {
		for _, request := range []string{"POST /charges", "GET /charges.csv", "GET /faults", "POST /faults"} {
			method, path, _ := strings.Cut(request, " ")
			body := map[string]string{
				"POST /charges": `{"reference":"query","amount":1,"currency":"EUR","source":"card"}`, "POST /faults": `{"next":1,"fault":"500"}`,
			}[request]
			if r := m.do(method, path+"?x=1", "query", body); r.status != 400 || r.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %s", request, r.status, r.body)
			}
		}
		m.count("query", 0)
	})
	t.Run("times that are in order as texts", func(t *testing.T) {
		m := open(t, psp.Config{Now: func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 120_000_000, time.FixedZone("", 3600)) }})
		m.charge("k", "r", 1)
		for path, want := range map[string]string{"/charges": `"created_at":"2026-12-01T11:00:00.120Z"`, "/charges.csv": ",2026-12-01T11:00:00.120Z\n"} {
			if r := m.do("GET", path, "", ""); !strings.Contains(string(r.body), want) {
				t.Errorf("%s: %s; want %s", path, r.body, want)
			}
		}
	})
	t.Run("400 for a query that is none", func(t *testing.T) {
		for _, q := range []string{"limit=0", "limit=1001", "limit=x", "bogus=1", "after=nobody", "limit=1&limit=2", "%zz", "reference=", "after=", "limit="} {
			if r := m.do("GET", "/charges?"+q, "", ""); r.status != 400 {
				t.Errorf("%s: %d", q, r.status)
			}
		}
		if r := m.do("GET", "/charges?limit=1000", "", ""); r.status != 200 {
			t.Errorf("limit=1000: %d", r.status)
		}
	})
	t.Run("settlement file", func(t *testing.T) {
		r := m.do("GET", "/charges.csv", "", "")
		rows, err := csv.NewReader(strings.NewReader(string(r.body))).ReadAll()
		if err != nil || len(rows) != n+1 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		if got := strings.Join(rows[0], ","); got != "id,reference,amount,currency,status,created_at" {
			t.Errorf("header %s", got)
		}
		c := m.charges("")[3]
		if got := strings.Join(rows[4][:5], ","); got != fmt.Sprintf("%s,%s,%d,EUR,captured", c.ID, c.Reference, c.Amount) {
			t.Errorf("row %s of %+v", got, c)
		}
	})
}
