// SPDX-License-Identifier: Apache-2.0

package psp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
