// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"sync"
	"testing"
)

func (w *world) coupon(key, code string, stock int) reply {
	w.t.Helper()
	return w.do(call{method: "POST", path: "/coupons", key: key, body: object{"code": code, "stock": stock}})
}

func (w *world) redeem(key, code, ref string) reply {
	w.t.Helper()
	return w.do(call{method: "POST", path: "/coupons/" + code + "/redemptions", key: key, body: object{"ref": ref}})
}

func TestCreateCoupon(t *testing.T) { onEach(t, testCreateCoupon) }

func testCreateCoupon(t *testing.T, on kind) {
	w := open(t, on)

	t.Run("201, and a repeat is the same", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		first := w.coupon(key, "SPRING", 3)
		w.want(first, 201, "")
		if first.text("code") != "SPRING" || first.member("stock") != 3.0 {
			t.Error(first)
		}
		if again := w.coupon(key, "SPRING", 3); again.status != 201 || again.body != first.body || !again.replayed() {
			t.Error(again)
		}
	})
	t.Run("409 coupon-exists for the same code under another key, stored", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		w.want(w.coupon(newKey(), "TWICE", 3), 201, "")
		w.want(w.coupon(key, "TWICE", 5), 409, "coupon-exists")
		if again := w.coupon(key, "TWICE", 5); !again.replayed() {
			t.Error(again)
		}
	})
	t.Run("400 without a stock, which burns no key, and 201 with none in stock", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		for _, body := range []string{
			`{"code":"EMPTY"}`, `{"code":"EMPTY","stock":null}`, `{"code":"EMPTY","stock":-1}`, `{"code":"EMPTY","stock":0.5}`,
		} {
			w.want(w.do(call{method: "POST", path: "/coupons", key: key, body: body}), 400, "invalid")
		}
		w.want(w.redeem(newKey(), "EMPTY", "empty"), 404, "not-found")
		w.want(w.coupon(key, "EMPTY", 0), 201, "")
		w.want(w.redeem(newKey(), "EMPTY", "empty"), 409, "coupon-exhausted")
		w.settle("empty", effects{})
	})
	t.Run("belongs to its caller", func(t *testing.T) {
		w := w.in(t)
		w.want(w.coupon(newKey(), "MINE", 1), 201, "")
		bob := func(path string, body object) reply {
			return w.do(call{method: "POST", path: path, key: newKey(), body: body, caller: "bob"})
		}
		w.want(bob("/coupons/MINE/redemptions", object{"ref": "stolen"}), 404, "not-found")
		w.want(bob("/coupons", object{"code": "MINE", "stock": 1}), 201, "")
		w.want(bob("/coupons/MINE/redemptions", object{"ref": "own"}), 201, "")
		w.want(w.redeem(newKey(), "MINE", "own"), 201, "")
	})
}

func TestRedeemCoupon(t *testing.T) { onEach(t, testRedeemCoupon) }

func testRedeemCoupon(t *testing.T, on kind) {
	w := open(t, on)

	t.Run("201 with id, code and ref, and a repeat takes no second one", func(t *testing.T) {
		w := w.in(t)
		w.want(w.coupon(newKey(), "ONE", 2), 201, "")
		key := newKey()
		first := w.redeem(key, "ONE", "one")
		w.want(first, 201, "")
		if first.text("id") == "" || first.text("code") != "ONE" || first.text("ref") != "one" {
			t.Error(first)
		}
		for range 3 {
			if again := w.redeem(key, "ONE", "one"); again.status != 201 || again.body != first.body || !again.replayed() {
				t.Error(again)
			}
		}
		w.settle("one", effects{Redemptions: 1, Events: counts{"coupon.redeemed": 1}})
	})
	t.Run("409 coupon-exhausted, stored", func(t *testing.T) {
		w := w.in(t)
		w.want(w.coupon(newKey(), "EMPTY", 0), 201, "")
		key := newKey()
		w.want(w.redeem(key, "EMPTY", "empty"), 409, "coupon-exhausted")
		if again := w.redeem(key, "EMPTY", "empty"); again.status != 409 || !again.replayed() {
			t.Error(again)
		}
		w.settle("empty", effects{})
	})
	t.Run("404 for no such coupon, not stored", func(t *testing.T) {
		w := w.in(t)
		key := newKey()
		w.want(w.redeem(key, "LATER", "later"), 404, "not-found")
		w.want(w.coupon(newKey(), "LATER", 1), 201, "")
		w.want(w.redeem(key, "LATER", "later"), 201, "")
		w.settle("later", effects{Redemptions: 1, Events: counts{"coupon.redeemed": 1}})
	})
	t.Run("422 for one key on two coupons", func(t *testing.T) {
		w := w.in(t)
		w.want(w.coupon(newKey(), "LEFT", 1), 201, "")
		w.want(w.coupon(newKey(), "RIGHT", 1), 201, "")
		key := newKey()
		w.want(w.redeem(key, "LEFT", "side"), 201, "")
		w.want(w.redeem(key, "RIGHT", "side"), 422, "key-reused")
	})
	t.Run("hands out exactly the stock to a crowd", func(t *testing.T) {
		w := w.in(t)
		w.want(w.coupon(newKey(), "TEN", 10), 201, "")
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[int]int{}
		for range 64 {
			wg.Go(func() {
				r := w.redeem(newKey(), "TEN", "ten")
				mu.Lock()
				defer mu.Unlock()
				got[r.status]++
			})
		}
		wg.Wait()
		if got[201] != 10 || got[409] != 54 {
			t.Errorf("answers %v", got)
		}
		w.settle("ten", effects{Redemptions: 10, Events: counts{"coupon.redeemed": 10}})
	})
	t.Run("takes codes that need escaping in a path", func(t *testing.T) {
		w := w.in(t)
		w.want(w.coupon(newKey(), "50% off?", 1), 201, "")
		w.want(w.redeem(newKey(), "50%25%20off%3F", "escaped"), 201, "")
	})
}
