// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"fmt"
	"testing"
)

func TestLists(t *testing.T) { onEach(t, testLists) }

func testLists(t *testing.T, on kind) {
	w := open(t, on)
	const n = 7
	var orders []string
	for i := range n {
		orders = append(orders, w.order(fmt.Sprint("r", i%2)))
	}
	var payments []string
	for i, path := range orders {
		r := w.pay(path, newKey(), fmt.Sprint("p", i%2))
		w.want(r, 201, "")
		payments = append(payments, r.text("id"))
	}
	w.want(w.do(call{method: "POST", path: "/orders", key: newKey(), body: orderBody("r0"), caller: "bob"}), 201, "")

	t.Run("all of the caller's, oldest first, on pages of any size", func(t *testing.T) {
		for _, limit := range []int{1, 2, 3, n - 1, n, n + 1, 1000} {
			got := pages(t, w.api, fmt.Sprint("/orders?limit=", limit))
			if len(got) != n {
				t.Fatalf("limit %d: %d orders", limit, len(got))
			}
			for i, o := range got {
				if "/orders/"+o["id"].(string) != orders[i] {
					t.Errorf("limit %d: order %d is %v", limit, i, o)
				}
			}
			got = pages(t, w.api, fmt.Sprint("/payments?limit=", limit))
			if len(got) != n {
				t.Fatalf("limit %d: %d payments", limit, len(got))
			}
			for i, p := range got {
				if p["id"] != payments[i] {
					t.Errorf("limit %d: payment %d is %v", limit, i, p)
				}
			}
		}
	})
	t.Run("those of one ref, over pages", func(t *testing.T) {
		for path, want := range map[string]int{
			"/orders?ref=r0": 4, "/orders?ref=r1&limit=2": 3, "/payments?ref=p0&limit=1": 4, "/payments?ref=p1": 3,
		} {
			if got := pages(t, w.api, path); len(got) != want {
				t.Errorf("%s: %d items; want %d", path, len(got), want)
			}
		}
	})
	t.Run("200 and an empty list for nothing", func(t *testing.T) {
		for _, path := range []string{"/orders?ref=none", "/payments?ref=none"} {
			if r := w.in(t).get(path); r.status != 200 || r.body != `{"items":[],"next":null}` {
				t.Errorf("%s: %v", path, r)
			}
		}
	})
	t.Run("400 for a query that is none", func(t *testing.T) {
		for _, list := range []string{"/orders", "/payments"} {
			for _, q := range []string{
				"limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "ref=", "bogus=1", "after=nobody", "limit=1&limit=1", "%zz",
				"after=" + w.do(call{method: "GET", path: "/orders", caller: "bob"}).text("id"),
			} {
				w.in(t).want(w.get(list+"?"+q), 400, "invalid")
			}
		}
	})
	t.Run("404 for a payment that isn't there and for another caller's", func(t *testing.T) {
		w := w.in(t)
		w.want(w.get("/payments/pay_none"), 404, "not-found")
		w.want(w.do(call{method: "GET", path: "/payments/" + payments[0], caller: "bob"}), 404, "not-found")
		w.want(w.get("/payments/"+payments[0]), 200, "")
	})
}
