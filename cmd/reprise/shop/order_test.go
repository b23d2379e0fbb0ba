// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

func newKey() string { return string(reprise.NewKey()) }

func TestCreateOrder(t *testing.T) { onEach(t, testCreateOrder) }

func testCreateOrder(t *testing.T, on kind) {
	w := open(t, on)
	create := func(key, ref string) reply {
		return w.do(call{method: "POST", path: "/orders", key: key, body: orderBody(ref)})
	}

	t.Run("answers 201 with the order, its address and its version", func(t *testing.T) {
		w := w.in(t)
		r := create(newKey(), "new")
		w.want(r, 201, "")
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(r.body), &members); err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq("id ref sku quantity amount currency status version created_at") {
			if members[name] == nil {
				t.Errorf("the order has no %s: %s", name, r.body)
			}
			delete(members, name)
		}
		if len(members) > 0 {
			t.Errorf("the order has more members than agreed: %v", members)
		}
		if r.header.Get("Location") != "/orders/"+r.text("id") || r.header.Get("ETag") != `"1"` {
			t.Errorf("Location %q, ETag %q", r.header.Get("Location"), r.header.Get("ETag"))
		}
		if at, err := time.Parse("2006-01-02T15:04:05.000Z", r.text("created_at")); err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("created_at %q", r.text("created_at"))
		}
		expires, err := time.Parse(time.RFC1123, r.header.Get("Idempotency-Expires"))
		if err != nil || time.Until(expires).Round(time.Hour) != 24*time.Hour {
			t.Errorf("Idempotency-Expires %q", r.header.Get("Idempotency-Expires"))
		}
		w.settle("new", effects{Orders: 1, Events: counts{"order.created": 1}})
	})
	t.Run("answers a repeat with the same bytes and executes nothing", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		first := create(key, "twice")
		for range 3 {
			again := create(key, "twice")
			if again.status != 201 || again.body != first.body || !again.replayed() ||
				again.header.Get("Location") != first.header.Get("Location") ||
				again.header.Get("ETag") != first.header.Get("ETag") ||
				again.header.Get("Idempotency-Expires") != first.header.Get("Idempotency-Expires") {
				t.Fatalf("first %v\nagain %v", first, again)
			}
		}
		if first.replayed() {
			t.Error("the first answer says that it is a replay")
		}
		w.settle("twice", effects{Orders: 1, Events: counts{"order.created": 1}})
	})
	t.Run("takes two keys with one ref for two orders", func(t *testing.T) {
		w := w.in(t)
		if a, b := create(newKey(), "same-ref"), create(newKey(), "same-ref"); a.text("id") == b.text("id") {
			t.Error("one order for two intents")
		}
		w.settle("same-ref", effects{Orders: 2, Events: counts{"order.created": 2}})
	})
	t.Run("refuses the key for another body and leaves the first as it was", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		first := create(key, "original")
		w.want(create(key, "changed"), 422, "key-reused")
		if again := create(key, "original"); again.body != first.body {
			t.Errorf("the original became %v", again)
		}
		w.settle("original", effects{Orders: 1, Events: counts{"order.created": 1}})
		w.settle("changed", effects{})
	})
	t.Run("refuses query parameters, which burns no key", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		w.want(w.do(call{method: "POST", path: "/orders?dry=1", key: key, body: orderBody("dry")}), 400, "invalid")
		w.want(create(key, "dry"), 201, "")
	})
	t.Run("takes the spellings of a number for one request", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		for i, spelling := range []string{"1200", "1200.0", "1.2e3", "12E+2"} {
			r := w.do(call{method: "POST", path: "/orders", key: key, body: `{"currency":"EUR","amount":` + spelling +
				`,"quantity":1.0,"sku":"cup","ref":"spelled"}`})
			w.want(r, 201, "")
			if r.replayed() != (i > 0) || r.member("amount") != 1200.0 {
				t.Errorf("%s: %v", spelling, r)
			}
		}
		w.settle("spelled", effects{Orders: 1, Events: counts{"order.created": 1}})
	})
	t.Run("keeps large numbers exactly", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		body := func(n string) string {
			return `{"ref":"large","sku":"cup","quantity":1,"amount":` + n + `,"currency":"EUR"}`
		}
		r := w.do(call{method: "POST", path: "/orders", key: key, body: body("9007199254740993")})
		w.want(r, 201, "")
		if !strings.Contains(r.body, `"amount":9007199254740993,`) {
			t.Error(r.body)
		}
		w.want(w.do(call{method: "POST", path: "/orders", key: key, body: body("9007199254740992")}), 422, "key-reused")
	})
	t.Run("gives one key of two callers to each of them", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		a := create(key, "scoped")
		b := w.do(call{method: "POST", path: "/orders", key: key, body: orderBody("scoped"), caller: "bob"})
		w.want(b, 201, "")
		if b.replayed() || a.text("id") == b.text("id") {
			t.Errorf("bob was shown the order of alice: %v", b)
		}
		w.settle("scoped", effects{Orders: 1, Events: counts{"order.created": 1}})
	})
	t.Run("takes one key on two operations for two intents", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		w.want(create(key, "operations"), 201, "")
		w.want(w.do(call{method: "POST", path: "/coupons", key: key, body: object{"code": "OPS", "stock": 1}}), 201, "")
	})
	t.Run("makes one order for 64 at once, and 422 for those with another body", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		var mu sync.Mutex
		got := map[string][]reply{}
		var wg sync.WaitGroup
		for i := range 64 {
			ref := []string{"this", "that"}[i%2]
			wg.Go(func() {
				r := create(key, ref)
				mu.Lock()
				defer mu.Unlock()
				got[ref] = append(got[ref], r)
			})
		}
		wg.Wait()
		won, lost := "this", "that"
		if got[won][0].status == 422 {
			won, lost = lost, won
		}
		for _, r := range got[won] {
			if r.status != 201 || r.body != got[won][0].body {
				t.Fatalf("%v\n%v", got[won][0], r)
			}
		}
		for _, r := range got[lost] {
			w.want(r, 422, "key-reused")
		}
		w.settle(won, effects{Orders: 1, Events: counts{"order.created": 1}})
		w.settle(lost, effects{})
	})
}

func TestMoment(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for ms, want := range map[int]string{
		0: `"2026-12-01T12:00:00.000Z"`, 120: `"2026-12-01T12:00:00.120Z"`, 999: `"2026-12-01T12:00:00.999Z"`,
	} {
		if got, err := json.Marshal(shop.Moment(at.Add(time.Duration(ms) * time.Millisecond))); err != nil || string(got) != want {
			t.Errorf("%d ms: %s, %v; want %s", ms, got, err, want)
		}
	}
}

func TestReadOrder(t *testing.T) { onEach(t, testReadOrder) }

func testReadOrder(t *testing.T, on kind) {
	w := open(t, on)
	path := w.order("read")

	t.Run("200 with the version as a strong ETag", func(t *testing.T) {
		w := w.in(t)
		r := w.get(path)
		w.want(r, 200, "")
		if r.header.Get("ETag") != `"1"` || r.text("ref") != "read" || r.header.Get("Idempotency-Expires") != "" {
			t.Error(r)
		}
		if head := w.do(call{method: "HEAD", path: path}); head.status != 200 || head.body != "" || head.header.Get("ETag") != `"1"` {
			t.Error(head)
		}
	})
	t.Run("404 for one that isn't there and for another caller's, alike", func(t *testing.T) {
		w := w.in(t)
		missing, other := w.get("/orders/ord_none"), w.do(call{method: "GET", path: path, caller: "bob"})
		w.want(missing, 404, "not-found")
		w.want(other, 404, "not-found")
		if missing.body != other.body {
			t.Errorf("the answers tell one from the other:\n%v\n%v", missing, other)
		}
	})
	t.Run("400 for a query parameter", func(t *testing.T) {
		w := w.in(t)
		w.want(w.get(path+"?full=1"), 400, "invalid")
	})
}

// change and cancel are the two writes that demand a version.
func (w *world) change(path, key, ifMatch string, amount int) reply {
	w.t.Helper()
	return w.versioned("PUT", path, key, ifMatch, object{"quantity": 2, "amount": amount})
}

func (w *world) cancel(path, key, ifMatch string) reply {
	w.t.Helper()
	return w.versioned("DELETE", path, key, ifMatch, nil)
}

func (w *world) versioned(method, path, key, ifMatch string, body any) reply {
	w.t.Helper()
	c := call{method: method, path: path, key: key, body: body}
	if ifMatch != "" {
		c.header = map[string]string{"If-Match": ifMatch}
	}
	return w.do(c)
}

func TestChangeOrder(t *testing.T) { onEach(t, testChangeOrder) }

func testChangeOrder(t *testing.T, on kind) {
	w := open(t, on)

	t.Run("makes a new version and an event", func(t *testing.T) {
		w := w.in(t)
		path := w.order("changed")
		r := w.change(path, "", `"1"`, 2400)
		w.want(r, 200, "")
		if r.header.Get("ETag") != `"2"` || r.member("amount") != 2400.0 || r.member("quantity") != 2.0 || r.member("version") != 2.0 {
			t.Error(r)
		}
		if now := w.get(path); now.body != r.body || now.header.Get("ETag") != `"2"` {
			t.Error(now)
		}
		w.settle("changed", effects{Orders: 1, Events: counts{"order.created": 1, "order.updated": 1}})
	})
	t.Run("428 without a version, 412 with another one, neither stored", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("versions"), newKey()
		w.want(w.change(path, key, "", 1), 428, "precondition-required")
		w.want(w.change(path, key, `"7"`, 1), 412, "precondition-failed")
		w.want(w.change(path, key, `W/"1"`, 1), 412, "precondition-failed")
		w.want(w.change(path, key, `unquoted`, 1), 400, "invalid")
		w.settle("versions", effects{Orders: 1, Events: counts{"order.created": 1}})
		r := w.change(path, key, `"1"`, 1)
		w.want(r, 200, "")
		if r.replayed() {
			t.Error("a refusal was stored")
		}
		w.want(w.change(path, "", `"1"`, 2), 412, "precondition-failed")
		w.want(w.change(path, "", `"9", "2"`, 2), 200, "")
		w.want(w.change(path, "", `*`, 3), 200, "")
	})
	t.Run("answers a repeat before the precondition, also without one", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("replayed"), newKey()
		first := w.change(path, key, `"1"`, 50)
		w.want(first, 200, "")
		for _, ifMatch := range []string{`"1"`, `"2"`, `"99"`, ""} {
			if again := w.change(path, key, ifMatch, 50); again.status != 200 || again.body != first.body || !again.replayed() {
				t.Errorf("If-Match %s: %v", ifMatch, again)
			}
		}
		w.want(w.change(path, key, `"2"`, 51), 422, "key-reused")
		w.settle("replayed", effects{Orders: 1, Events: counts{"order.created": 1, "order.updated": 1}})
	})
	t.Run("422 for one key on two orders", func(t *testing.T) {
		w := w.in(t)
		a, b, key := w.order("a"), w.order("b"), newKey()
		w.want(w.change(a, key, `"1"`, 50), 200, "")
		w.want(w.change(b, key, `"1"`, 50), 422, "key-reused")
		if r := w.get(b); r.member("version") != 1.0 {
			t.Error(r)
		}
	})
	t.Run("lets one of two writers win that read the same version", func(t *testing.T) {
		w := w.in(t)
		path := w.order("race")
		var mu sync.Mutex
		got := map[int]int{}
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				r := w.change(path, newKey(), `"1"`, 100+i)
				mu.Lock()
				defer mu.Unlock()
				got[r.status]++
			})
		}
		wg.Wait()
		if got[200] != 1 || got[412] != 15 {
			t.Errorf("answers %v", got)
		}
		w.settle("race", effects{Orders: 1, Events: counts{"order.created": 1, "order.updated": 1}})
	})
	t.Run("404 for another caller's", func(t *testing.T) {
		w := w.in(t)
		path := w.order("mine")
		w.want(w.do(call{
			method: "PUT", path: path, caller: "bob", body: object{"quantity": 1, "amount": 1},
			header: map[string]string{"If-Match": `"1"`},
		}), 404, "not-found")
		w.want(w.change("/orders/ord_none", "", `"1"`, 1), 404, "not-found")
	})
}

func TestCancelOrder(t *testing.T) { onEach(t, testCancelOrder) }

func testCancelOrder(t *testing.T, on kind) {
	w := open(t, on)

	t.Run("cancels once", func(t *testing.T) {
		w := w.in(t)
		path := w.order("cancelled")
		w.want(w.cancel(path, "", ""), 428, "precondition-required")
		w.want(w.cancel(path, "", `"2"`), 412, "precondition-failed")
		r := w.cancel(path, "", `"1"`)
		w.want(r, 200, "")
		if r.text("status") != "cancelled" || r.header.Get("ETag") != `"2"` {
			t.Error(r)
		}
		again := w.cancel(path, "", `"2"`)
		w.want(again, 200, "")
		if again.body != r.body {
			t.Error(again)
		}
		w.settle("cancelled", effects{Orders: 1, Events: counts{"order.created": 1, "order.cancelled": 1}})
	})
	t.Run("answers a repeat before the precondition", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("repeat"), newKey()
		first := w.cancel(path, key, `"1"`)
		w.want(first, 200, "")
		for _, ifMatch := range []string{`"1"`, ""} {
			if again := w.cancel(path, key, ifMatch); again.body != first.body || !again.replayed() {
				t.Error(again)
			}
		}
		w.settle("repeat", effects{Orders: 1, Events: counts{"order.created": 1, "order.cancelled": 1}})
	})
	t.Run("a cancelled order can't be changed, and that is stored", func(t *testing.T) {
		w := w.in(t)
		path, key := w.order("dead"), newKey()
		w.want(w.cancel(path, "", `"1"`), 200, "")
		w.want(w.change(path, key, `"2"`, 5), 409, "order-cancelled")
		if again := w.change(path, key, `"2"`, 5); !again.replayed() {
			t.Error(again)
		}
	})
	t.Run("takes no body", func(t *testing.T) {
		w := w.in(t)
		path := w.order("body")
		w.want(w.versioned("DELETE", path, "", `"1"`, object{"why": "because"}), 400, "invalid")
		w.want(w.cancel(path, "", `"1"`), 200, "")
	})
	t.Run("404 for another caller's", func(t *testing.T) {
		w := w.in(t)
		path := w.order("mine")
		w.want(w.do(call{method: "DELETE", path: path, caller: "bob", header: map[string]string{"If-Match": `"1"`}}), 404, "not-found")
	})
}
