// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// taken counts the charges of a provider, whatever the shop knows of them.
func (p *provider) taken(t *testing.T) (captured, declined int) {
	t.Helper()
	for _, c := range pages(t, p.url, "/charges") {
		switch c["status"] {
		case psp.Captured:
			captured++
		case psp.Declined:
			declined++
		}
	}
	return captured, declined
}

// TestPurgedKey uses keys again that the shop has forgotten.
func TestPurgedKey(t *testing.T) { onEach(t, testPurgedKey) }

func testPurgedKey(t *testing.T, on kind) {
	forgetful := func(c *shop.Config) { c.Retention, c.Tombstone = time.Second, time.Second }
	costly := func(w *world, ref string) (path string) {
		body := orderBody(ref)
		body["amount"] = psp.DefaultDeclineOver + 1
		r := w.do(call{method: "POST", path: "/orders", key: newKey(), body: body})
		w.want(r, 201, "")
		return r.header.Get("Location")
	}

	t.Run("for the payment of another order, which is another charge", func(t *testing.T) {
		t.Parallel()
		w := open(t, on, forgetful)
		const key = "a-key-without-a-time"
		first, second := w.order("first"), w.order("second")
		w.want(w.pay(first, key, "first"), 201, "")
		w.want(w.pay(second, key, "second"), 422, "key-reused")
		var r reply
		if !eventually(func() bool { r = w.pay(second, key, "second"); return r.status != 422 }) {
			t.Fatal("the key is not forgotten")
		}
		w.want(r, 201, "")
		w.settle("first", paid)
		w.settle("second", paid)
		if captured, _ := w.provider.taken(t); captured != 2 {
			t.Errorf("%d charges; want one for each order", captured)
		}
	})
	t.Run("for the payment of the same order, which is paid", func(t *testing.T) {
		t.Parallel()
		w := open(t, on, forgetful)
		const key = "a-key-without-a-time"
		path := w.order("paid")
		w.want(w.pay(path, key, "paid"), 201, "")
		var r reply
		if !eventually(func() bool { r = w.pay(path, key, "paid"); return !r.replayed() && r.status != 410 }) {
			t.Fatal("the key is not forgotten")
		}
		w.want(r, 409, "order-paid")
		w.settle("paid", paid)
	})
	for name, amount := range map[string]int{
		"for a payment that was declined, which it still is": 0,
		"also after the order became cheaper":                100,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, on, forgetful)
			const key = "a-key-without-a-time"
			path := costly(w, "declined")
			w.want(w.pay(path, key, "declined"), 402, "declined")
			events := counts{"order.created": 1}
			if amount > 0 {
				w.want(w.change(path, "", `*`, amount), 200, "")
				events["order.updated"]++
			}
			var r reply
			if !eventually(func() bool { r = w.pay(path, key, "declined"); return !r.replayed() && r.status != 410 }) {
				t.Fatal("the key is not forgotten")
			}
			w.want(r, 402, "declined")
			w.settle("declined", effects{Orders: 1, Events: events})
			if captured, declined := w.provider.taken(t); captured != 0 || declined != 1 {
				t.Errorf("%d captured and %d declined; want 0 and 1", captured, declined)
			}

			w.want(w.change(path, "", `*`, 200), 200, "")
			events["order.updated"]++
			w.want(w.pay(path, newKey(), "declined"), 201, "")
			events["payment.captured"]++
			w.settle("declined", effects{Orders: 1, Payments: 1, Charges: 1, Events: events})
		})
	}
}

// TestLostDatabase takes the shop's memory away, in whole or in part, while the
// provider keeps its own.
func TestLostDatabase(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		// keep says after which step the copy is made that the shop goes back to;
		// there is none if it is 0.
		keep int
	}{
		"all of it":                     {0},
		"everything since it was empty": {1},
		"everything since the order":    {2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pr := openProvider(t)
			dir := t.TempDir()
			copied := t.TempDir()
			args := []string{"--db", "sqlite:" + filepath.Join(dir, "shop.db"), "--psp", pr.url}
			var p *process
			run := func() *world {
				p = start(t, args...)
				return p.world(pr)
			}
			end := func(step int) {
				p.signal(syscall.SIGTERM)
				if s := p.exit(); s.ExitCode() != 0 {
					t.Fatalf("%v: %s", s, p.stderr)
				}
				if step == row.keep {
					replaceFiles(t, copied, dir)
				}
			}
			create := call{method: "POST", path: "/orders", key: newKey(), body: orderBody("lost")}
			key := newKey()

			run()
			end(1)
			order := run().do(create)
			end(2)
			path := order.header.Get("Location")
			w := run()
			w.want(order, 201, "")
			payment := w.pay(path, key, "lost")
			w.want(payment, 201, "")
			end(3)
			replaceFiles(t, dir, copied)

			w = run()
			if n := pages(t, w.admin, "/ledger"); len(n) != max(row.keep-1, 0) {
				t.Fatalf("the shop remembers %v", n)
			}
			again := w.do(create)
			w.want(again, 201, "")
			if again.text("id") != order.text("id") {
				t.Errorf("the order became another one: %v, then %v", order, again)
			}
			repaid := w.pay(path, key, "lost")
			w.want(repaid, 201, "")
			if repaid.replayed() || repaid.body != payment.body {
				t.Errorf("the payment became another one: %v, then %v", payment, repaid)
			}
			w.settle("lost", paid)
			if captured, _ := pr.taken(t); captured != 1 {
				t.Errorf("%d charges; want 1", captured)
			}

			// What is asked for under other keys is something else.
			w.want(w.pay(w.order("other"), newKey(), "other"), 201, "")
			w.settle("other", paid)
			if captured, _ := pr.taken(t); captured != 2 {
				t.Errorf("%d charges; want 2", captured)
			}
		})
	}
}

// replaceFiles makes directory to hold what directory from holds.
func replaceFiles(t *testing.T, to, from string) {
	t.Helper()
	for _, dir := range []string{to, from} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			target := filepath.Join(to, f.Name())
			if dir == to {
				err = os.Remove(target)
			} else {
				var content []byte
				if content, err = os.ReadFile(filepath.Join(from, f.Name())); err == nil {
					err = os.WriteFile(target, content, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
