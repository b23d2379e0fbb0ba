// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// keyAt returns a UUIDv7 that was minted at a given time.
func keyAt(t time.Time) string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(t.UnixMilli())<<16)
	random := newKey()
	copy(u[8:], random[len(random)-8:])
	u[6], u[8] = 0x70, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func TestExpiry(t *testing.T) { onEach(t, testExpiry) }

func testExpiry(t *testing.T, on kind) {
	w := open(t, on, func(c *shop.Config) { c.Retention, c.Tombstone = time.Second, 5*time.Second })
	create := func(key, ref string) reply {
		return w.do(call{method: "POST", path: "/orders", key: key, body: orderBody(ref)})
	}
	timed, plain := newKey(), "a-key-without-a-time"
	first, second := create(timed, "timed"), create(plain, "plain")
	w.want(first, 201, "")
	w.want(second, 201, "")

	if !eventually(func() bool { return create(timed, "timed").status == 410 && create(plain, "plain").status == 410 }) {
		t.Fatal("the results do not expire")
	}
	t.Run("410 with the reference after the retention, and 422 for another body", func(t *testing.T) {
		w := w.in(t)
		for key, made := range map[string]reply{timed: first, plain: second} {
			r := create(key, made.text("ref"))
			w.want(r, 410, "key-expired")
			if r.text("reference") != "/orders/"+made.text("id") || r.text("retry") != "reconcile" {
				t.Error(r)
			}
			w.want(create(key, "another"), 422, "key-reused")
		}
	})
	if !eventually(func() bool { return create(plain, "plain").status == 201 }) {
		t.Fatal("the tombstone does not go")
	}
	t.Run("after the tombstone a key with a time is refused, and any other is new", func(t *testing.T) {
		w := w.in(t)
		for _, key := range []string{timed, strings.ToUpper(timed)} {
			// The tombstone of a key with a time lives a little longer, so that there is
			// no gap before its age alone refuses it. Its reference goes with it.
			if !eventually(func() bool {
				r := create(key, "timed")
				w.want(r, 410, "key-expired")
				return r.member("reference") == nil
			}) {
				t.Error("the tombstone of a key with a time does not go")
			}
		}
		w.settle("timed", effects{Orders: 1, Events: counts{"order.created": 1}})
		w.settle("plain", effects{Orders: 2, Events: counts{"order.created": 2}})
		w.settle("another", effects{})
	})
}

// TestKeyAge asks with keys that were never seen, at the ages where the answer
// changes.
func TestKeyAge(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite)
	const horizon = 30 * 24 * time.Hour
	for age, want := range map[time.Duration]int{
		horizon + time.Minute:        410,
		100 * horizon:                410,
		horizon - time.Minute:        201,
		0:                            201,
		-4 * time.Minute:             201,
		-5*time.Minute - time.Second: 400,
	} {
		for _, form := range []func(string) string{strings.ToLower, strings.ToUpper} {
			ref := fmt.Sprint("age", int(age.Seconds()), len(form("x")), form("x"))
			r := w.do(call{method: "POST", path: "/orders", key: form(keyAt(time.Now().Add(-age))), body: orderBody(ref)})
			if r.status != want {
				t.Errorf("age %v: %v", age, r)
				continue
			}
			orders := effects{}
			if want == 201 {
				orders = effects{Orders: 1, Events: counts{"order.created": 1}}
			}
			w.settle(ref, orders)
		}
	}
}
