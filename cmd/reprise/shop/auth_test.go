// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// as asks for the list of orders with an Authorization field.
func (w *world) as(authorization string) reply {
	w.t.Helper()
	header := map[string]string{}
	if authorization != "" {
		header["Authorization"] = authorization
	}
	return send(w.t, "GET", w.api+"/orders", header, nil)
}

func TestDevAuth(t *testing.T) {
	t.Parallel()
	t.Run("is on by default on loopback", func(t *testing.T) {
		t.Parallel()
		w := open(t, onSQLite)
		w.want(w.as("Bearer dev-alice"), 200, "")
		w.want(w.as("bearer  dev-alice"), 200, "")
		w.want(w.as("Bearer dev-"+strings.Repeat("a", 255)), 200, "")
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer dev-", "Bearer alice", "Basic dev-alice", "dev-alice", "Bearer dev-a b",
			"Bearer dev-\xff", "Bearer dev-" + strings.Repeat("a", 256),
		} {
			r := w.as(authorization)
			w.want(r, 401, "unauthenticated")
			if r.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%q: WWW-Authenticate %q", authorization, r.header.Get("WWW-Authenticate"))
			}
		}
		r := send(t, "POST", w.api+"/orders", map[string]string{"Idempotency-Key": newKey(), "Content-Type": "application/json"}, orderBody("anonymous"))
		w.want(r, 401, "unauthenticated")
		if n := pages(t, w.admin, "/ledger"); len(n) != 0 {
			t.Errorf("the ledger holds %v", n)
		}
	})
	t.Run("is off by default elsewhere", func(t *testing.T) {
		t.Parallel()
		w := open(t, onSQLite, func(c *shop.Config) { c.Listen = "0.0.0.0:0" })
		w.want(w.as("Bearer dev-alice"), 401, "unauthenticated")
	})
	t.Run("is off if that is said", func(t *testing.T) {
		t.Parallel()
		w := open(t, onSQLite, func(c *shop.Config) { c.DevAuth = new(bool) })
		w.want(w.as("Bearer dev-alice"), 401, "unauthenticated")
		w.want(send(t, "GET", w.api+"/.well-known/retry-contract", nil, nil), 200, "")
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# who may call\n\ns3cret alice\n  other\tbob  \nold carol revoked\n")
	w := open(t, onSQLite, func(c *shop.Config) { c.Tokens = file })

	order := call{method: "POST", path: "/orders", key: newKey(), body: orderBody("token"), header: map[string]string{"Authorization": "Bearer s3cret"}}
	first := w.do(order)
	w.want(first, 201, "")
	w.settle("token", effects{Orders: 1, Events: counts{"order.created": 1}})
	w.want(w.as("Bearer other"), 200, "")
	w.want(w.as("Bearer old"), 401, "unauthenticated")
	w.want(w.as("Bearer unknown"), 401, "unauthenticated")
	w.want(w.as("Bearer dev-alice"), 401, "unauthenticated")

	t.Run("a file that can't be read leaves those in force that were known", func(t *testing.T) {
		w := w.in(t)
		write("s3cret alice revoked\nnonsense\n")
		if err := w.shop.ReloadTokens(); exit.CodeOf(err) != exit.Usage {
			t.Errorf("reload: %v", err)
		}
		w.want(w.as("Bearer s3cret"), 200, "")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := w.shop.ReloadTokens(); exit.CodeOf(err) != exit.Environment {
			t.Errorf("reload: %v", err)
		}
		w.want(w.as("Bearer s3cret"), 200, "")
	})
	t.Run("a revoked token does not get its own answer again", func(t *testing.T) {
		w := w.in(t)
		write("s3cret alice revoked\nfresh alice\n")
		if err := w.shop.ReloadTokens(); err != nil {
			t.Fatal(err)
		}
		w.want(w.do(order), 401, "unauthenticated")
		order.header = map[string]string{"Authorization": "Bearer fresh"}
		if again := w.do(order); again.body != first.body || !again.replayed() {
			t.Error(again)
		}
	})
	t.Run("dev-auth stands beside a file if that is said", func(t *testing.T) {
		on := true
		w := open(t, onSQLite, func(c *shop.Config) { c.Tokens, c.DevAuth = file, &on })
		w.want(w.as("Bearer dev-alice"), 200, "")
		w.want(w.as("Bearer fresh"), 200, "")
	})
	t.Run("dev-auth does not let in whom the file has revoked or named otherwise", func(t *testing.T) {
		on := true
		write("dev-mallory alice revoked\ndev-robert bob\n")
		w := open(t, onSQLite, func(c *shop.Config) { c.Tokens, c.DevAuth = file, &on })
		order := call{method: "POST", path: "/orders", key: newKey(), body: orderBody("dev"), caller: "mallory"}
		w.want(w.do(order), 401, "unauthenticated")
		if n := pages(t, w.admin, "/ledger"); len(n) != 0 {
			t.Errorf("a revoked token came to the ledger: %v", n)
		}
		order.caller = "robert"
		w.want(w.do(order), 201, "")
		if e := effectsOf(t, w.admin, "bob", "dev"); e.Orders != 1 {
			t.Errorf("%+v", e)
		}
		w.want(w.as("Bearer dev-alice"), 200, "")
	})
}

func TestTokenFilesThatAreNone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"one field":    "s3cret\n",
		"four fields":  "s3cret alice revoked today\n",
		"a third word": "s3cret alice active\n",
		"a repetition": "s3cret alice\ns3cret bob\n",
		"no text":      "s3cret al\xffice\n",
		"a long one":   "s3cret " + strings.Repeat("a", 256) + "\n",
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := shop.Open(t.Context(), shop.Config{
			Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", DB: "sqlite:" + filepath.Join(t.TempDir(), "shop.db"), Tokens: file,
		})
		if s != nil || exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}
