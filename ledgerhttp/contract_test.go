// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"testing"

	"github.com/reprise-go/reprise/contract"
)

func TestContractHandler(t *testing.T) {
	t.Parallel()
	s := setup(t)
	get := call{method: "GET", path: contract.Path}
	first := s.send(get)
	first.want(t, 200, "")

	t.Run("W7 the document is the contract", func(t *testing.T) {
		t.Parallel()
		c, err := contract.Parse([]byte(first.body))
		check(t, err)
		if got, want := len(c.Operations()), len(shopOperations); got != want {
			t.Errorf("%d operations, want %d", got, want)
		}
		op, ok := c.Match("POST", "/orders/7/payments")
		if !ok || op.Name != "pay" || op.Key != contract.KeyRequired || op.Mode != contract.Staged {
			t.Errorf("got %+v, %v", op, ok)
		}
		if got := first.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type is %q", got)
		}
	})
	t.Run("HEAD has no body", func(t *testing.T) {
		t.Parallel()
		a := s.send(get.via("HEAD"))
		if a.status != 200 || a.body != "" || a.header.Get("Etag") == "" {
			t.Errorf("got %d %q %v", a.status, a.body, a.header)
		}
	})
	t.Run("a client that has it is told so", func(t *testing.T) {
		t.Parallel()
		a := s.send(get.with("If-None-Match", first.header.Get("Etag")))
		if a.status != 304 || a.body != "" {
			t.Errorf("got %d %q", a.status, a.body)
		}
	})
	t.Run("it can't be written", func(t *testing.T) {
		t.Parallel()
		a := s.send(get.via("POST"))
		a.want(t, 405, "method-not-allowed")
		if a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow is %q", a.header.Get("Allow"))
		}
	})
}
