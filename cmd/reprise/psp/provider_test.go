// SPDX-License-Identifier: Apache-2.0

package psp_test

import (
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
