// SPDX-License-Identifier: Apache-2.0

package psp_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/psp"
)

// merchant is a client of one provider.
type merchant struct {
	t        *testing.T
	url      string
	provider *psp.Provider
}

// reply is one answer, read to its end. A broken connection has no status.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) charge(t *testing.T) psp.Charge {
	t.Helper()
	var c psp.Charge
	if err := json.Unmarshal(r.body, &c); err != nil || c.ID == "" {
		t.Fatalf("no charge in %q: %v", r.body, err)
	}
	return c
}

func open(t *testing.T, c psp.Config) *merchant {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "psp.db")
	}
	if c.DeclineOver == 0 {
		c.DeclineOver = psp.DefaultDeclineOver
	}
	p, err := psp.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p.Handler())
	t.Cleanup(func() {
		p.Release()
		s.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &merchant{t: t, url: s.URL, provider: p}
}

func (m *merchant) do(method, path, key, body string) reply {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), method, m.url+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	req.GetBody = nil
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}
	}
	return reply{resp.StatusCode, resp.Header, b}
}

func (m *merchant) charge(key, reference string, amount int64) reply {
	m.t.Helper()
	return m.do("POST", "/charges", key,
		fmt.Sprintf(`{"reference":%q,"amount":%d,"currency":"EUR","source":"card"}`, reference, amount))
}

// charges walks all pages of the query and returns what it found.
func (m *merchant) charges(query string) []psp.Charge {
	m.t.Helper()
	var all []psp.Charge
	for next := "/charges?" + query; ; {
		r := m.do("GET", next, "", "")
		var page struct {
			Items []psp.Charge
			Next  *string
		}
		if err := json.Unmarshal(r.body, &page); err != nil || r.status != 200 {
			m.t.Fatalf("GET %s: %d %s (%v)", next, r.status, r.body, err)
		}
		all = append(all, page.Items...)
		if page.Next == nil {
			return all
		}
		next = *page.Next
	}
}

// count fails the test unless the provider has n charges of the reference.
func (m *merchant) count(reference string, n int) {
	m.t.Helper()
	if got := len(m.charges("reference=" + reference)); got != n {
		m.t.Fatalf("%d charges of %s; want %d", got, reference, n)
	}
}

func (m *merchant) order(n int, fault psp.Fault) {
	m.t.Helper()
	if r := m.do("POST", "/faults", "", fmt.Sprintf(`{"next":%d,"fault":%q}`, n, fault)); r.status != 200 {
		m.t.Fatalf("POST /faults: %d %s", r.status, r.body)
	}
}

func (m *merchant) fired(fault psp.Fault) int {
	m.t.Helper()
	var report struct{ Fired map[psp.Fault]int }
	if err := json.Unmarshal(m.do("GET", "/faults", "", "").body, &report); err != nil {
		m.t.Fatal(err)
	}
	return report.Fired[fault]
}

func TestCharge(t *testing.T) {
	t.Parallel()
	m := open(t, psp.Config{})

	t.Run("captured once per key", func(t *testing.T) {
		first, second := m.charge("k1", "r1", 500), m.charge("k1", "r1", 500)
		if first.status != 200 || second.status != 200 || first.charge(t) != second.charge(t) {
			t.Fatalf("%d %s, then %d %s", first.status, first.body, second.status, second.body)
		}
		if c := first.charge(t); c.Status != psp.Captured || c.Reference != "r1" || c.Amount != 500 {
			t.Errorf("charge %+v", c)
		}
		if first.header.Get("Idempotent-Replayed") != "" || second.header.Get("Idempotent-Replayed") != "true" {
			t.Error("only the second answer is a replay")
		}
		m.count("r1", 1)
	})
	t.Run("charged again under another key", func(t *testing.T) {
		if a, b := m.charge("k2", "r2", 1).charge(t), m.charge("k3", "r2", 1).charge(t); a.ID == b.ID {
			t.Error("two keys made one charge")
		}
		m.count("r2", 2)
	})
	t.Run("captured once for every spelling of the amount", func(t *testing.T) {
		for _, spelling := range []string{"500", "500.0", "5e2", "5.0e2", "50E+1"} {
			r := m.do("POST", "/charges", "spelled",
				`{"reference":"spelled","amount":`+spelling+`,"currency":"EUR","source":"card"}`)
			if r.status != 200 || r.charge(t).Amount != 500 {
				t.Errorf("%s: %d %s", spelling, r.status, r.body)
			}
		}
		m.count("spelled", 1)
	})
	t.Run("refused with other parameters", func(t *testing.T) {
		m.charge("k4", "r4", 1)
		if r := m.charge("k4", "r4", 2); r.status != 400 || !strings.Contains(string(r.body), "key-reused") {
			t.Errorf("other amount: %d %s", r.status, r.body)
		}
		if r := m.charge("k4", "other", 1); r.status != 400 {
			t.Errorf("other reference: %d %s", r.status, r.body)
		}
		m.count("r4", 1)
		m.count("other", 0)
	})
	t.Run("declined over the limit, once per key", func(t *testing.T) {
		first, second := m.charge("k5", "r5", psp.DefaultDeclineOver+1), m.charge("k5", "r5", psp.DefaultDeclineOver+1)
		if first.status != 402 || second.status != 402 || first.charge(t) != second.charge(t) {
			t.Fatalf("%d %s, then %d %s", first.status, first.body, second.status, second.body)
		}
		if c := first.charge(t); c.Status != psp.Declined {
			t.Errorf("charge %+v", c)
		}
		m.count("r5", 1)
		if r := m.charge("k6", "r6", psp.DefaultDeclineOver); r.status != 200 {
			t.Errorf("exactly the limit: %d", r.status)
		}
	})
	t.Run("quoted and bare keys are one", func(t *testing.T) {
		m.charge("k7", "r7", 1)
		m.charge(`"k7"`, "r7", 1)
		m.count("r7", 1)
	})
}

func TestChargeOfBadInput(t *testing.T) {
	t.Parallel()
	m := open(t, psp.Config{})
	good := `{"reference":"r","amount":1,"currency":"EUR","source":"card"}`
	for name, row := range map[string]struct{ key, body string }{
		"no key":            {"", good},
		"empty body":        {"k", " "},
		"no object":         {"k", `[]`},
		"unknown member":    {"k", `{"reference":"r","amount":1,"currency":"EUR","source":"card","tip":1}`},
		"no reference":      {"k", `{"amount":1,"currency":"EUR","source":"card"}`},
		"no amount":         {"k", `{"reference":"r","currency":"EUR","source":"card"}`},
		"amount of null":    {"k", `{"reference":"r","amount":null,"currency":"EUR","source":"card"}`},
		"amount as a text":  {"k", `{"reference":"r","amount":"1","currency":"EUR","source":"card"}`},
		"amount of nothing": {"k", `{"reference":"r","amount":0,"currency":"EUR","source":"card"}`},
		"negative amount":   {"k", `{"reference":"r","amount":-1,"currency":"EUR","source":"card"}`},
		"fractional amount": {"k", `{"reference":"r","amount":1.5,"currency":"EUR","source":"card"}`},
		"no currency":       {"k", `{"reference":"r","amount":1,"source":"card"}`},
		"no source":         {"k", `{"reference":"r","amount":1,"currency":"EUR"}`},
		"something follows": {"k", good + good},
		"truncated":         {"k", good[:20]},
	} {
		r := m.do("POST", "/charges", row.key, row.body)
		if r.status != 400 || r.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	if all := m.charges(""); len(all) != 0 {
		t.Errorf("bad input made charges: %v", all)
	}
	if r := m.do("PUT", "/charges", "k", good); r.status != 405 || !strings.Contains(r.header.Get("Allow"), "POST") {
		t.Errorf("PUT: %d, Allow %q", r.status, r.header.Get("Allow"))
	}
	if r := m.do("GET", "/nothing", "", ""); r.status != 404 || r.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("unknown path: %d %s", r.status, r.body)
	}
}

func TestChargeAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("one charge for many requests with one key", func(t *testing.T) {
		m := open(t, psp.Config{})
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if r := m.charge("k", "r", 1); r.status != 200 && r.status != 409 {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		}
		wg.Wait()
		m.count("r", 1)
	})
	t.Run("409 while the first is at work", func(t *testing.T) {
		m := open(t, psp.Config{Latency: 300 * time.Millisecond})
		var mu sync.Mutex
		got := map[int]int{}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				r := m.charge("k", "r", 1)
				mu.Lock()
				defer mu.Unlock()
				got[r.status]++
			})
		}
		wg.Wait()
		if got[200] != 1 || got[409] != 1 {
			t.Errorf("answers %v; want one 200 and one 409", got)
		}
		m.count("r", 1)
	})
	t.Run("one charge when two providers share a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "psp.db")
		a, b := open(t, psp.Config{Path: path}), open(t, psp.Config{Path: path})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				if r := []*merchant{a, b}[i%2].charge("k", "r", 1); r.status != 200 && r.status != 409 {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		}
		wg.Wait()
		a.count("r", 1)
		b.count("r", 1)
	})
}

func TestKeyLife(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	m := open(t, psp.Config{Now: func() time.Time { return now }})
	first := m.charge("k", "r", 1).charge(t)
	now = now.Add(psp.KeyLife - time.Millisecond)
	if again := m.charge("k", "r", 1).charge(t); again.ID != first.ID {
		t.Error("the key was forgotten before its time")
	}
	m.count("r", 1)
	now = now.Add(time.Millisecond)
	if again := m.charge("k", "r", 1).charge(t); again.ID == first.ID {
		t.Error("the key was remembered beyond its time")
	}
	m.count("r", 2)
	if r := m.charge("k", "r", 2); r.status != 400 {
		t.Errorf("the second life of the key is not remembered: %d", r.status)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	// made is whether the charge is made although its maker isn't told.
	for fault, row := range map[psp.Fault]struct{ status, made int }{
		psp.CommitThenReset:  {0, 1},
		psp.Hang:             {0, 1},
		psp.HangBefore:       {0, 0},
		psp.ErrorAfterCommit: {500, 1},
		psp.ErrorBefore:      {500, 0},
		psp.Conflict:         {409, 0},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			m := open(t, psp.Config{})
			m.order(1, fault)
			if fault == psp.Hang || fault == psp.HangBefore {
				m.hangUp(fault)
			} else if r := m.charge("k", "r", 1); r.status != row.status {
				t.Fatalf("%d %s; want %d", r.status, r.body, row.status)
			}
			if n := m.fired(fault); n != 1 {
				t.Fatalf("the fault fired %d times", n)
			}
			m.count("r", row.made)
			if r := m.charge("k", "r", 1); r.status != 200 {
				t.Fatalf("repeat: %d %s", r.status, r.body)
			}
			m.count("r", 1)
		})
	}
	t.Run("are refused if unknown", func(t *testing.T) {
		t.Parallel()
		m := open(t, psp.Config{})
		for _, body := range []string{`{"next":1,"fault":"fire"}`, `{"next":-1,"fault":"500"}`, `{"next":0,"fault":"500"}`, `{"fault":"500"}`, `{"next":1}`, `{}`, `{`} {
			if r := m.do("POST", "/faults", "", body); r.status != 400 {
				t.Errorf("%s: %d", body, r.status)
			}
		}
		if r := m.charge("k", "r", 1); r.status != 200 {
			t.Errorf("charge: %d", r.status)
		}
	})
	t.Run("can be exchanged for others", func(t *testing.T) {
		t.Parallel()
		m := open(t, psp.Config{})
		m.order(3, psp.ErrorBefore)
		m.order(1, psp.Conflict)
		if r := m.charge("k", "r", 1); r.status != 409 || m.fired(psp.ErrorBefore) != 0 || m.fired(psp.Conflict) != 1 {
			t.Errorf("charge: %d", r.status)
		}
		if r := m.charge("k", "r", 1); r.status != 200 {
			t.Errorf("charge: %d", r.status)
		}
		m.count("r", 1)
	})
}

// hangUp sends a charge, waits until the fault has it, and then goes away by
// releasing what hangs.
func (m *merchant) hangUp(fault psp.Fault) {
	m.t.Helper()
	answered := make(chan reply, 1)
	go func() { answered <- m.charge("k", "r", 1) }()
	wants := map[psp.Fault]int{psp.Hang: 1}[fault]
	for deadline := time.Now().Add(5 * time.Second); m.fired(fault) == 0 || len(m.charges("")) != wants; {
		if time.Now().After(deadline) {
			m.t.Fatal("the fault did not fire")
		}
	}
	select {
	case r := <-answered:
		m.t.Fatalf("answered %d %s", r.status, r.body)
	default:
	}
	m.provider.Release()
	if r := <-answered; r.status != 0 {
		m.t.Fatalf("answered %d %s", r.status, r.body)
	}
}

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

func TestOpen(t *testing.T) {
	t.Parallel()
	t.Run("charges and keys survive a restart", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a #1?.db")
		c := psp.Config{Path: path, DeclineOver: 10}
		p, err := psp.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(p.Handler())
		before := (&merchant{t: t, url: s.URL}).charge("k", "r", 1).charge(t)
		s.Close()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		m := open(t, c)
		if after := m.charge("k", "r", 1).charge(t); after != before {
			t.Errorf("%+v became %+v", before, after)
		}
		m.count("r", 1)
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	})
	t.Run("refuses", func(t *testing.T) {
		dir := t.TempDir()
		corrupt := filepath.Join(dir, "corrupt.db")
		if err := os.WriteFile(corrupt, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, row := range map[string]struct {
			config psp.Config
			code   exit.Code
		}{
			"no path":           {psp.Config{}, exit.Usage},
			"negative latency":  {psp.Config{Path: filepath.Join(dir, "x"), Latency: -1}, exit.Usage},
			"negative limit":    {psp.Config{Path: filepath.Join(dir, "x"), DeclineOver: -1}, exit.Usage},
			"corrupt file":      {psp.Config{Path: corrupt}, exit.Environment},
			"missing directory": {psp.Config{Path: filepath.Join(dir, "no", "x")}, exit.Environment},
		} {
			p, err := psp.Open(t.Context(), row.config)
			if exit.CodeOf(err) != row.code {
				t.Errorf("%s: %v", name, err)
			}
			if p != nil {
				t.Errorf("%s: a provider was opened", name)
			}
		}
	})
}
