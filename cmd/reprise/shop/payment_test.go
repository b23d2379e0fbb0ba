// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
	"github.com/reprise-go/reprise/contract"
)

// paid is what one order and one payment with one ref come to.
var paid = effects{
	Orders: 1, Payments: 1, Charges: 1, Events: counts{"order.created": 1, "payment.captured": 1},
}

// unpaid is what an order comes to that isn't paid.
var unpaid = effects{Orders: 1, Events: counts{"order.created": 1}}

func impatient(c *shop.Config) { c.PSPTimeout = 300 * time.Millisecond }

func TestPay(t *testing.T) { onEach(t, testPay) }

func testPay(t *testing.T, on kind) {
	w := open(t, on)

	t.Run("charges the order's amount once", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("paid"), newKey()
		first := w.pay(path, key, "paid")
		w.want(first, 201, "")
		if first.header.Get("Location") != "/payments/"+first.text("id") || first.text("order_id") != path[len("/orders/"):] ||
			first.text("status") != "captured" || first.member("amount") != 1200.0 || first.text("currency") != "EUR" ||
			first.text("psp_reference") == "" || first.text("ref") != "paid" {
			t.Error(first)
		}
		for range 2 {
			if again := w.pay(path, key, "paid"); again.status != 201 || again.body != first.body || !again.replayed() {
				t.Fatal(again)
			}
		}
		if r := w.get(first.header.Get("Location")); r.status != 200 || r.body != first.body {
			t.Error(r)
		}
		if r := w.get(path); r.text("status") != "paid" || r.header.Get("ETag") != `"2"` {
			t.Error(r)
		}
		w.settle("paid", paid)
	})
	t.Run("calls the provider with the payment's id under a key derived from the caller's", func(t *testing.T) {
		w := w.in(t)
		before := len(w.provider.charges())
		key := newKey()
		r := w.pay(w.order("derived"), key, "derived")
		w.want(r, 201, "")
		sent := w.provider.charges()[before:]
		if len(sent) != 1 {
			t.Fatalf("%d requests", len(sent))
		}
		var body struct {
			Reference, Currency, Source string
			Amount                      int
		}
		if err := json.Unmarshal([]byte(sent[0].body), &body); err != nil {
			t.Fatal(err)
		}
		if body.Reference != r.text("id") || body.Amount != 1200 || body.Currency != "EUR" || body.Source != "card" {
			t.Error(sent[0].body)
		}
		derived := reprise.Intent{Caller: "alice", Operation: "pay-order", Key: reprise.Key(key)}.Derive("charge " + r.text("order_id"))
		if sent[0].key != `"`+string(derived)+`"` {
			t.Errorf("the provider saw key %s; want %s", sent[0].key, derived)
		}
	})
	t.Run("409 order-paid under another key, stored", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("again"), newKey()
		w.want(w.pay(path, newKey(), "again"), 201, "")
		first := w.pay(path, key, "again")
		w.want(first, 409, "order-paid")
		if again := w.pay(path, key, "again"); !again.replayed() || again.body != first.body {
			t.Error(again)
		}
		w.want(w.change(path, "", `"2"`, 5), 409, "order-paid")
		stored := newKey()
		w.want(w.cancel(path, stored, `"2"`), 409, "order-paid")
		if again := w.cancel(path, stored, `"2"`); !again.replayed() {
			t.Error(again)
		}
		w.settle("again", paid)
	})
	t.Run("409 order-cancelled, stored", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("cancelled"), newKey()
		w.want(w.cancel(path, "", `"1"`), 200, "")
		w.want(w.pay(path, key, "cancelled"), 409, "order-cancelled")
		if again := w.pay(path, key, "cancelled"); !again.replayed() {
			t.Error(again)
		}
		w.settle("cancelled", effects{Orders: 1, Events: counts{"order.created": 1, "order.cancelled": 1}})
	})
	t.Run("404 for no order and for another caller's, not stored", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("mine"), newKey()
		w.want(w.pay("/orders/ord_none", key, "mine"), 404, "not-found")
		other := w.do(call{method: "POST", path: path + "/payments", key: key, body: paymentBody("mine"), caller: "bob"})
		w.want(other, 404, "not-found")
		w.want(w.pay(path, key, "mine"), 201, "")
		w.settle("mine", paid)
	})
	t.Run("422 for one key with another body or another order", func(t *testing.T) {
		w := w.in(t)
		path, other, key := w.order("body"), w.order("other"), newKey()
		w.want(w.pay(path, key, "body"), 201, "")
		w.want(w.pay(path, key, "other"), 422, "key-reused")
		w.want(w.pay(other, key, "body"), 422, "key-reused")
		w.settle("body", paid)
		w.settle("other", unpaid)
	})
	t.Run("402 for a decline, stored, and the order is free for another key", func(t *testing.T) {
		w := w.in(t)
		body := orderBody("declined")
		body["amount"] = psp.DefaultDeclineOver + 1
		path := w.do(call{method: "POST", path: "/orders", key: newKey(), body: body}).header.Get("Location")
		key := newKey()
		first := w.pay(path, key, "declined")
		w.want(first, 402, "declined")
		if again := w.pay(path, key, "declined"); !again.replayed() || again.body != first.body {
			t.Error(again)
		}
		w.settle("declined", unpaid)
		w.want(w.change(path, "", `"1"`, 100), 200, "")
		w.want(w.pay(path, key, "declined"), 402, "declined")
		w.want(w.pay(path, newKey(), "declined"), 201, "")
		w.settle("declined", effects{
			Orders: 1, Payments: 1, Charges: 1,
			Events: counts{"order.created": 1, "order.updated": 1, "payment.captured": 1},
		})
	})
	t.Run("captures one payment of 32 that come at once under one key", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("crowd"), newKey()
		var wg sync.WaitGroup
		var mu sync.Mutex
		bodies := map[string]bool{}
		for range 32 {
			wg.Go(func() {
				r := w.pay(path, key, "crowd")
				if r.status != 201 {
					t.Error(r)
				}
				mu.Lock()
				defer mu.Unlock()
				bodies[r.body] = true
			})
		}
		wg.Wait()
		if len(bodies) != 1 {
			t.Errorf("%d different answers", len(bodies))
		}
		w.settle("crowd", paid)
	})
	t.Run("captures one payment of 32 that come at once under 32 keys", func(t *testing.T) {
		w := w.in(t)
		path := w.order("keys")
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[int]int{}
		for range 32 {
			wg.Go(func() {
				r := w.pay(path, newKey(), "keys")
				if r.status == 409 && r.text("code") != "order-paid" && r.text("code") != "payment-in-progress" {
					t.Error(r)
				}
				mu.Lock()
				defer mu.Unlock()
				got[r.status]++
			})
		}
		wg.Wait()
		if got[201] != 1 || got[409] != 31 {
			t.Errorf("answers %v", got)
		}
		w.settle("keys", paid)
	})
}

func TestPayWithProviderInTrouble(t *testing.T) { onEach(t, testPayWithProviderInTrouble) }

func testPayWithProviderInTrouble(t *testing.T, on kind) {
	for _, fault := range []psp.Fault{
		psp.CommitThenReset, psp.Hang, psp.HangBefore, psp.ErrorAfterCommit, psp.ErrorBefore, psp.Conflict,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			w := open(t, on, impatient)
			path, key := w.order("trouble"), newKey()
			w.provider.fault(t, 1, fault)
			r := w.pay(path, key, "trouble")
			w.want(r, 503, "outcome-unknown")
			if r.header.Get("Retry-After") == "" || r.text("retry") != "same-key" || r.text("outcome") != "unknown" {
				t.Error(r)
			}
			if n := w.provider.fired(t, fault); n != 1 {
				t.Fatalf("the fault fired %d times", n)
			}
			w.want(w.insist(path, key, "trouble"), 201, "")
			w.want(w.pay(path, newKey(), "trouble"), 409, "order-paid")
			w.settle("trouble", paid)
			sent := w.provider.charges()
			if len(sent) < 2 || slices.ContainsFunc(sent, func(c sentCharge) bool { return c != sent[0] }) {
				t.Errorf("the provider was sent %v; want the same key and bytes again and again", sent)
			}
		})
	}
	t.Run("that can't be reached", func(t *testing.T) {
		t.Parallel()
		w := open(t, on, impatient, func(c *shop.Config) { c.PSP = "http://127.0.0.1:1" })
		path, key := w.order("away"), newKey()
		w.want(w.pay(path, key, "away"), 503, "outcome-unknown")
		w.want(w.pay(path, key, "away"), 503, "outcome-unknown")
		w.want(w.pay(path, newKey(), "away"), 409, "payment-in-progress")
		if n := pages(t, w.admin, "/ledger?state=in_progress"); len(n) != 1 {
			t.Errorf("in progress: %v", n)
		}
		if r := send(t, "GET", w.admin+"/effects?caller=alice&ref=away", nil, nil); r.status != 503 {
			t.Errorf("effects are told although the provider can't be asked: %v", r)
		}
		// What has no payment needs no provider to be counted.
		w.order("unpaid")
		w.want(w.coupon(newKey(), "AWAY", 1), 201, "")
		w.want(w.redeem(newKey(), "AWAY", "redeemed"), 201, "")
		for ref, want := range map[string]effects{"unpaid": {Orders: 1}, "redeemed": {Redemptions: 1}, "none": {}} {
			if e := effectsOf(t, w.admin, "alice", ref); e.Orders != want.Orders || e.Redemptions != want.Redemptions || e.Charges != 0 {
				t.Errorf("%s: %+v", ref, e)
			}
		}
	})
}

// logbook is a log that can be read while it is written.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestPayWithProviderThatMakesNoSense(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status int
		body   string
	}{
		"200 without a charge":               {200, `{}`},
		"200 that is no JSON":                {200, `OK`},
		"200 for a decline":                  {200, `{"id":"c","reference":"other","status":"declined"}`},
		"200 for another payment":            {200, `{"id":"c","reference":"other","status":"captured"}`},
		"402 without a charge":               {402, ``},
		"402 with a problem":                 {402, `{"code":"declined","status":402}`},
		"402 for another payment":            {402, `{"id":"c","reference":"other","status":"declined"}`},
		"a redirect":                         {302, ``},
		"400, as for a key with other bytes": {400, `{"code":"key-reused"}`},
		"401, which is our own mistake":      {401, ``},
		"409, as for a key in flight":        {409, `{"code":"in-progress"}`},
		"422":                                {422, `{"code":"key-reused"}`},
		"429":                                {429, ``},
		"500":                                {500, `{"code":"internal"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := new(logbook)
			w := open(t, onSQLite, func(c *shop.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			path, key := w.order("nonsense"), newKey()
			w.provider.answer(row.status, row.body)
			for range 2 {
				w.want(w.pay(path, key, "nonsense"), 503, "outcome-unknown")
			}
			if r := w.get(path); r.text("status") != "open" {
				t.Error(r)
			}
			if n := pages(t, w.admin, "/ledger?state=in_progress"); len(n) != 1 {
				t.Errorf("in progress: %v", n)
			}
			said := fmt.Sprintf("the provider answered %d %q", row.status, row.body)
			if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, strings.Trim(strconv.Quote(said), `"`)) {
				t.Errorf("nobody is told that %s: %s", said, text)
			}

			w.provider.answer(0, "")
			w.want(w.insist(path, key, "nonsense"), 201, "")
			w.settle("nonsense", paid)
			sent := w.provider.charges()
			if len(sent) < 3 || slices.ContainsFunc(sent, func(c sentCharge) bool { return c != sent[0] }) {
				t.Errorf("the provider was sent %v; want the same key and bytes again and again", sent)
			}
		})
	}
}

func TestPaymentInProgress(t *testing.T) { onEach(t, testPaymentInProgress) }

func testPaymentInProgress(t *testing.T, on kind) {
	w := open(t, on, func(c *shop.Config) { c.Wait, c.PSPTimeout = 50*time.Millisecond, 20*time.Second })
	path, key := w.order("busy"), newKey()
	w.provider.fault(t, 1, psp.Hang)
	first := make(chan reply, 1)
	go func() { first <- w.pay(path, key, "busy") }()
	if !eventually(func() bool { return w.provider.fired(t, psp.Hang) == 1 }) {
		t.Fatal("the fault did not fire")
	}

	t.Run("409 in-progress under the same key, with Retry-After", func(t *testing.T) {
		w := w.in(t)
		r := w.pay(path, key, "busy")
		w.want(r, 409, "in-progress")
		if r.header.Get("Retry-After") == "" || r.text("retry") != "same-key" {
			t.Error(r)
		}
	})
	t.Run("422 under the same key with another body", func(t *testing.T) {
		w := w.in(t)
		w.want(w.pay(path, key, "other"), 422, "key-reused")
	})
	other, changed, cancelled := newKey(), newKey(), newKey()
	t.Run("409 payment-in-progress for every other change", func(t *testing.T) {
		w := w.in(t)
		w.want(w.pay(path, other, "busy"), 409, "payment-in-progress")
		w.want(w.change(path, changed, `"1"`, 5), 409, "payment-in-progress")
		w.want(w.cancel(path, cancelled, `"1"`), 409, "payment-in-progress")
		w.want(w.change(path, "", `"1"`, 5), 409, "payment-in-progress")
		if n := pages(t, w.admin, "/ledger?state=in_progress"); len(n) != 1 {
			t.Errorf("in progress: %v", n)
		}
	})
	t.Run("which is not stored: the keys are free when it is over", func(t *testing.T) {
		w := w.in(t)
		w.provider.psp.Release()
		r := <-first
		w.want(r, 503, "outcome-unknown")
		w.want(w.pay(path, key, "busy"), 201, "")
		for _, r := range []reply{
			w.pay(path, other, "busy"), w.change(path, changed, `"1"`, 5), w.cancel(path, cancelled, `"1"`),
		} {
			w.want(r, 409, "order-paid")
			if r.replayed() {
				t.Error(r)
			}
		}
		w.settle("busy", paid)
	})
}

func TestNoWait(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite, func(c *shop.Config) { c.Wait, c.PSPTimeout = shop.NoWait, 20*time.Second })
	path, key := w.order("impatient"), newKey()
	w.provider.fault(t, 1, psp.Hang)
	first := make(chan reply, 1)
	go func() { first <- w.pay(path, key, "impatient") }()
	if !eventually(func() bool { return w.provider.fired(t, psp.Hang) == 1 }) {
		t.Fatal("the fault did not fire")
	}
	// Each of these would wait for two seconds by default, and for the first payment
	// if it waited without end.
	began := time.Now()
	for range 20 {
		w.want(w.pay(path, key, "impatient"), 409, "in-progress")
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("20 repeats waited %v", took)
	}
	if c := send(t, "GET", w.api+contract.Path, nil, nil); !strings.Contains(c.body, `"wait_ms":0,"effects":[{"name":"charge"`) {
		t.Errorf("the contract promises %v", c)
	}
	w.provider.psp.Release()
	w.want(<-first, 503, "outcome-unknown")
	w.want(w.insist(path, key, "impatient"), 201, "")
	w.settle("impatient", paid)
}

func TestRecovery(t *testing.T) { onEach(t, testRecovery) }

func testRecovery(t *testing.T, on kind) {
	t.Run("by itself, without the client", func(t *testing.T) {
		t.Parallel()
		w := open(t, on, func(c *shop.Config) { c.Lease = 300 * time.Millisecond })
		path, key := w.order("alone"), newKey()
		w.provider.fault(t, 1, psp.CommitThenReset)
		w.want(w.pay(path, key, "alone"), 503, "outcome-unknown")
		w.settle("alone", paid)
		if r := w.pay(path, key, "alone"); r.status != 201 || !r.replayed() {
			t.Error(r)
		}
	})
	t.Run("on demand", func(t *testing.T) {
		t.Parallel()
		w := open(t, on)
		// The recovery that runs by itself may be the first to see it, now and then.
		if !eventually(func() bool {
			ref, key := newKey(), newKey()
			path := w.order(ref)
			w.provider.fault(t, 1, psp.ErrorBefore)
			w.want(w.pay(path, key, ref), 503, "outcome-unknown")
			r := send(t, "POST", w.admin+"/recover", nil, nil)
			w.want(r, 200, "")
			w.settle(ref, paid)
			if again := w.pay(path, key, ref); again.status != 201 || !again.replayed() {
				t.Error(again)
			}
			return r.member("found") == 1.0 && r.member("completed") == 1.0
		}) {
			t.Fatal("nothing is recovered on demand")
		}
		if r := send(t, "POST", w.admin+"/recover", nil, nil); r.member("found") != 0.0 {
			t.Error(r)
		}
	})
}
