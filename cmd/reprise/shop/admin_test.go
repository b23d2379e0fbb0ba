// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
	"github.com/reprise-go/reprise/contract"
)

func TestAdmin(t *testing.T) { onEach(t, testAdmin) }

func testAdmin(t *testing.T, on kind) {
	w := open(t, on)
	admin := func(path string) reply { return send(t, "GET", w.admin+path, nil, nil) }

	t.Run("is healthy and ready", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz"} {
			if r := admin(path); r.status != 200 {
				t.Errorf("%s: %v", path, r)
			}
		}
	})
	t.Run("400 for effects of nobody in particular", func(t *testing.T) {
		for _, q := range []string{"", "caller=alice", "ref=x", "caller=alice&ref=x&more=1", "caller=a&caller=b&ref=x", "%zz"} {
			wantProblem(t, admin("/effects?"+q), 400, "invalid")
		}
		if r := admin("/effects?caller=alice&ref=none"); r.status != 200 || strings.TrimSpace(r.body) !=
			`{"orders":0,"payments":0,"charges":0,"redemptions":0,"events":{},"deliveries":{}}` {
			t.Error(r)
		}
	})
	t.Run("404 and 405", func(t *testing.T) {
		wantProblem(t, admin("/nothing"), 404, "not-found")
		r := send(t, "POST", w.admin+"/effects", nil, nil)
		wantProblem(t, r, 405, "method-not-allowed")
		r = admin("/recover")
		wantProblem(t, r, 405, "method-not-allowed")
		if r.header.Get("Allow") != "POST" {
			t.Error(r)
		}
	})
	t.Run("counts what became of requests", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("metrics"), newKey()
		w.want(w.pay(path, key, "metrics"), 201, "")
		w.want(w.pay(path, key, "metrics"), 201, "")
		w.want(w.pay(path, key, "other"), 422, "key-reused")
		w.want(w.pay(path, newKey(), "metrics"), 409, "order-paid")
		w.want(w.cancel(w.order("metrics"), "", ""), 428, "precondition-required")
		w.settle("metrics", effects{
			Orders: 2, Payments: 1, Charges: 1, Events: counts{"order.created": 2, "payment.captured": 1},
		})
		want := []string{
			`reprise_server_requests_total{operation="pay-order",outcome="executed"} 1`,
			`reprise_server_requests_total{operation="pay-order",outcome="replayed"} 1`,
			`reprise_server_requests_total{operation="pay-order",outcome="mismatch"} 1`,
			`reprise_server_requests_total{operation="pay-order",outcome="conflict"} 1`,
			`reprise_server_requests_total{operation="cancel-order",outcome="rejected"} 1`,
			`reprise_server_operations{state="in_progress"} 0`,
			`reprise_inbox_messages_total{result="applied",source="/shop"} 3`,
			`reprise_outbox_publish_total{result="confirmed",sink="builtin",topic="order.created"} 2`,
			`reprise_outbox_pending 0`,
			`reprise_outbox_dead 0`,
			`reprise_outbox_oldest_pending_age_seconds 0`,
			`reprise_outbox_relay_lease_held 1`,
			`reprise_build_info{`,
			`reprise_outbox_relay_last_success_timestamp_seconds 1`,
			`reprise_outbox_publish_duration_seconds_count{sink="builtin"} 3`,
		}
		var r reply
		var missing []string
		if !eventually(func() bool { // The relay notes a delivery a moment after its effect.
			r, missing = admin("/metrics"), nil
			for _, line := range want {
				if !strings.Contains(r.body, "\n"+line) {
					missing = append(missing, line)
				}
			}
			return len(missing) == 0
		}) {
			t.Errorf("missing %q in\n%s", missing, r.body)
		}
	})
}

// TestSQLiteMetrics shows what the driver of SQLite counts by itself.
func TestSQLiteMetrics(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite)
	writes := func() (n, commits int) {
		body := send(t, "GET", w.admin+"/metrics", nil, nil).body
		for name, value := range map[string]*int{"writes_total": &n, "commits_total": &commits} {
			_, rest, found := strings.Cut(body, "\nreprise_sqlite_"+name+" ")
			if _, err := fmt.Sscan(rest, value); !found || err != nil {
				t.Fatalf("no %s, %v, in\n%s", name, err, body)
			}
		}
		for _, line := range []string{"log_bytes ", "log_renewals_total 0\n", "log_held_seconds 0\n"} {
			if !strings.Contains(body, "\nreprise_sqlite_"+line) {
				t.Errorf("no %q in\n%s", line, body)
			}
		}
		return n, commits
	}
	before, _ := writes()
	w.order("a")
	w.order("b")
	if !eventually(func() bool { n, commits := writes(); return n >= before+2 && commits > 0 && commits <= n }) {
		n, commits := writes()
		t.Errorf("%d writes before two orders, and %d in %d commits after them", before, n, commits)
	}
}

func TestLedgerList(t *testing.T) { onEach(t, testLedgerList) }

func testLedgerList(t *testing.T, on kind) {
	w := open(t, on, impatient)
	const n = 5
	for i := range n {
		w.order(fmt.Sprint("l", i))
	}
	path, key := w.order("stuck"), newKey()
	w.provider.fault(t, 1, psp.ErrorBefore)
	w.want(w.pay(path, key, "stuck"), 503, "outcome-unknown")

	t.Run("entries without bodies, on pages", func(t *testing.T) {
		for _, limit := range []int{1, 2, 3, n + 2, 1000} {
			if got := pages(t, w.admin, fmt.Sprint("/ledger?limit=", limit)); len(got) != n+2 {
				t.Errorf("limit %d: %d entries", limit, len(got))
			}
		}
		for _, e := range pages(t, w.admin, "/ledger?state=completed&limit=2") {
			if e["caller"] != "alice" || e["operation"] != "create-order" || e["state"] != "completed" || e["status"] != 201.0 ||
				e["key"] == "" || !strings.HasPrefix(e["reference"].(string), "/orders/") || e["body"] != nil || e["input"] != nil {
				t.Errorf("%v", e)
			}
		}
	})
	t.Run("by state", func(t *testing.T) {
		for state, want := range map[string]int{"completed": n + 1, "in_progress": 1, "unsettled": 0, "tombstone": 0} {
			if got := pages(t, w.admin, "/ledger?state="+state); len(got) != want {
				t.Errorf("%s: %v", state, got)
			}
		}
		if e := pages(t, w.admin, "/ledger?state=in_progress")[0]; e["key"] != key || e["drives"] != 1.0 {
			t.Error(e)
		}
	})
	t.Run("400 for a query that is none", func(t *testing.T) {
		for _, q := range []string{"state=done", "limit=0", "limit=1001", "after=xyz", "after=00", "after=" + strings.Repeat("zz", 16), "bogus=1"} {
			wantProblem(t, send(t, "GET", w.admin+"/ledger?"+q, nil, nil), 400, "invalid")
		}
	})
}

func TestAdminToken(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite, func(c *shop.Config) { c.Admin, c.AdminToken = "0.0.0.0:0", "s3cret" })
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := send(t, "GET", w.admin+path, nil, nil); r.status != 200 {
			t.Errorf("%s: %v", path, r)
		}
	}
	for _, path := range []string{"/metrics", "/effects?caller=alice&ref=x", "/ledger"} {
		for _, token := range []string{"", "Bearer", "Bearer wrong", "Bearer dev-alice"} {
			wantProblem(t, send(t, "GET", w.admin+path, map[string]string{"Authorization": token}, nil), 401, "unauthenticated")
		}
		if r := send(t, "GET", w.admin+path, map[string]string{"Authorization": "Bearer s3cret"}, nil); r.status != 200 {
			t.Errorf("%s: %v", path, r)
		}
	}
	wantProblem(t, send(t, "POST", w.admin+"/recover", nil, nil), 401, "unauthenticated")
}

// TestContract reads the document as a client does, and then calls what it
// promises.
func TestContract(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite, func(c *shop.Config) {
		c.Retention, c.Tombstone, c.Wait = time.Hour, 48*time.Hour, 1500*time.Millisecond
	})
	r := send(t, "GET", w.api+"/.well-known/retry-contract", nil, nil)
	w.want(r, 200, "")
	if _, err := contract.Parse([]byte(r.body)); err != nil {
		t.Error(err)
	}
	wantProblem(t, send(t, "GET", w.api+contract.Path+"?version=2", nil, nil), 400, "invalid")
	type effect struct{ Name, By string }
	type operation struct {
		Name, Method, Path, Safety, Key, Precondition, Mode string
		Retention                                           int `json:"retention_seconds"`
		Tombstone                                           int `json:"tombstone_seconds"`
		Wait                                                int `json:"wait_ms"`
		Effects                                             []effect
	}
	var document struct {
		Version    int
		Operations []operation
	}
	if err := json.Unmarshal([]byte(r.body), &document); err != nil || document.Version != 1 {
		t.Fatalf("version %d, %v", document.Version, err)
	}
	got := map[string]string{}
	for _, o := range document.Operations {
		got[o.Method+" "+o.Path] = fmt.Sprint(o.Safety, " ", o.Key, " ", o.Precondition, " ", o.Mode, " ",
			o.Retention, " ", o.Tombstone, " ", o.Wait, " ", o.Effects)
	}
	const lifetimes, none = " 3600 172800 1500 ", " none none none 0 0 0 []"
	want := map[string]string{
		"POST /orders":                     "keyed required none atomic" + lifetimes + "[{order.created outbox}]",
		"GET /orders":                      "safe" + none,
		"GET /orders/{id}":                 "safe" + none,
		"PUT /orders/{id}":                 "idempotent optional if-match atomic" + lifetimes + "[{order.updated outbox}]",
		"DELETE /orders/{id}":              "idempotent optional if-match atomic" + lifetimes + "[{order.cancelled outbox}]",
		"POST /orders/{id}/payments":       "keyed required none staged" + lifetimes + "[{charge downstream-key} {payment.captured outbox}]",
		"GET /payments":                    "safe" + none,
		"GET /payments/{id}":               "safe" + none,
		"POST /coupons":                    "keyed required none atomic" + lifetimes + "[]",
		"POST /coupons/{code}/redemptions": "keyed required none atomic" + lifetimes + "[{coupon.redeemed outbox}]",
		"GET /.well-known/retry-contract":  "safe" + none,
	}
	for endpoint, promise := range want {
		if got[endpoint] != promise {
			t.Errorf("%s\n got %s\nwant %s", endpoint, got[endpoint], promise)
		}
		delete(got, endpoint)
	}
	if len(got) > 0 {
		t.Errorf("promised beside: %v", got)
	}
}
