// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"errors"
	"testing"

	"github.com/reprise-go/reprise"
)

func TestStaged(t *testing.T) {
	t.Parallel()
	pay := func(key string) call { return post(key, orderBody).to("/orders/1/payments") }

	t.Run("S4 one intent is one call under one key, and its answer is repeated", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		charges := map[reprise.Key]int{}
		s.provide(func(key reprise.Key, _ []byte) ([]byte, error) {
			charges[key]++
			return []byte("ch_1"), nil
		})
		c := pay(newKey())
		first := s.send(c)
		first.want(t, 201, "")
		again := s.send(c)
		again.wantReplay(t, true)
		again.wantSame(t, first)
		if len(charges) != 1 {
			t.Errorf("charges by key: %v", charges)
		}
		s.wantRows("r", 1)
		s.send(post(c.key, `{"ref":"q","amount":1}`).to(c.path)).want(t, 422, reprise.CodeKeyReused)
		s.send(c.to("/orders/2/payments")).want(t, 422, reprise.CodeKeyReused)
	})
	t.Run("L14 a decision of the provider is stored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		calls := 0
		s.provide(func(reprise.Key, []byte) ([]byte, error) {
			calls++
			return nil, &reprise.Error{Code: "declined", Outcome: reprise.Rejected}
		})
		c := pay(newKey())
		first := s.send(c)
		first.want(t, 402, "declined")
		again := s.send(c)
		again.wantReplay(t, true)
		again.wantSame(t, first)
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
		s.wantRows("r", 0)
	})
	t.Run("S7 an unknown outcome is 503, and the same key finds out", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		var keys []reprise.Key
		s.provide(func(key reprise.Key, _ []byte) ([]byte, error) {
			keys = append(keys, key)
			if len(keys) == 1 {
				return nil, errors.New("connection reset")
			}
			return []byte("ch_1"), nil
		})
		c := pay(newKey())
		a := s.send(c)
		a.want(t, 503, reprise.CodeOutcomeUnknown)
		if a.header.Get("Retry-After") == "" || a.header.Get("Retry-Context") != "" {
			t.Errorf("an unknown outcome was told as %v", a.header)
		}
		s.wantRows("r", 0)
		s.send(c).want(t, 201, "")
		if len(keys) != 2 || keys[0] != keys[1] {
			t.Errorf("calls under %q, want one key twice", keys)
		}
		s.wantRows("r", 1)
	})
	t.Run("a refusal before the first step is not stored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.provide(func(reprise.Key, []byte) ([]byte, error) {
			t.Error("the provider was called")
			return nil, nil
		})
		c := post(newKey(), `{"ref":"refused","amount":1}`).to("/orders/1/payments")
		for range 2 {
			a := s.send(c)
			a.want(t, 409, "payment-in-progress")
			a.wantReplay(t, false)
		}
		if s.runs.Load() != 2 {
			t.Errorf("the handler ran %d times, want 2: a refusal was kept", s.runs.Load())
		}
		s.wantRows("refused", 0)
	})
	t.Run("validation and key come before the claim", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		key := newKey()
		s.send(post(key, `{"ref":"r","amount":-1}`).to("/orders/1/payments")).want(t, 400, reprise.CodeInvalid)
		s.send(pay("")).want(t, 400, reprise.CodeKeyMissing)
		s.send(pay(`"`)).want(t, 400, reprise.CodeKeyInvalid)
		if s.runs.Load() != 0 {
			t.Errorf("the handler ran %d times", s.runs.Load())
		}
		s.provide(func(reprise.Key, []byte) ([]byte, error) { return []byte("ch_1"), nil })
		s.send(pay(key)).want(t, 201, "")
		s.wantRows("r", 1)
	})
}
