// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"net/http"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/wire"
)

// What the contract says of an operation reaches the ledger.
func TestContractTerms(t *testing.T) {
	t.Parallel()
	offer := func(key, body string) call { return post(key, body).to("/offers") }

	t.Run("L9 retention is the operation's", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		a := s.send(offer(newKey(), orderBody))
		a.want(t, 201, "")
		at, err := http.ParseTime(a.header.Get(wire.HeaderExpires))
		check(t, err)
		if left := time.Until(at); left < 50*time.Minute || left > time.Hour {
			t.Errorf("expires in %v, want just under 1h", left)
		}
	})
	t.Run("F2 a chosen field belongs to what was asked", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := offer(newKey(), orderBody)
		first := s.send(c.with("Api-Version", "1"))
		first.want(t, 201, "")
		s.send(c.with("Api-Version", "2")).want(t, 422, reprise.CodeKeyReused)
		s.send(c).want(t, 422, reprise.CodeKeyReused)
		s.send(c.with("Api-Version", "1", "User-Agent", "other")).wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("F3 a volatile member does not", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		key := newKey()
		first := s.send(offer(key, `{"ref":"r","amount":1,"sent_at":"10:00"}`))
		first.want(t, 201, "")
		s.send(offer(key, `{"ref":"r","amount":1,"sent_at":"10:01"}`)).wantSame(t, first)
		s.send(offer(key, `{"ref":"r","amount":2,"sent_at":"10:00"}`)).want(t, 422, reprise.CodeKeyReused)
		s.wantRows("r", 1)
	})
	t.Run("W4 the client's count of the attempt is handed on", func(t *testing.T) {
		t.Parallel()
		var numbers []int
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &numbered{d, &numbers} }
		})
		for _, field := range []string{"attempt=3, max=4", "attempt=three", "attempt=-1", ""} {
			c := post(newKey(), orderBody)
			if field != "" {
				c = c.with(wire.HeaderRetryContext, field)
			}
			s.send(c).want(t, 201, "")
		}
		if len(numbers) != 4 || numbers[0] != 3 || numbers[1] != 0 || numbers[2] != 0 || numbers[3] != 0 {
			t.Errorf("got attempts %v, want 3 0 0 0", numbers)
		}
	})
}

// numbered notes the attempt number of each claim.
type numbered struct {
	store.Driver[*sql.Tx]
	numbers *[]int
}

func (d *numbered) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, *sql.Tx) (store.Completion, error),
) (store.Entry, bool, error) {
	*d.numbers = append(*d.numbers, c.Number)
	return d.Driver.Execute(ctx, c, work)
}

func TestAgeOfKeys(t *testing.T) {
	t.Parallel()
	// The ledger's clock is moved, not the key's: to it the key is old or young.
	at := func(shift time.Duration) func(*options) {
		return func(o *options) { o.ledger.Now = func() time.Time { return time.Now().Add(shift) } }
	}

	t.Run("K8 a key that is minted in the future is 400", func(t *testing.T) {
		t.Parallel()
		s := setup(t, at(-6*time.Minute))
		s.send(post(newKey(), orderBody)).want(t, 400, reprise.CodeKeyInvalid)
		s.wantRows("r", 0)
	})
	t.Run("K8 clocks may differ by less", func(t *testing.T) {
		t.Parallel()
		s := setup(t, at(-4*time.Minute))
		s.send(post(newKey(), orderBody)).want(t, 201, "")
		s.wantRows("r", 1)
	})
	t.Run("L9 a key that is older than the memory is 410, and not executed", func(t *testing.T) {
		t.Parallel()
		s := setup(t, at(31*24*time.Hour))
		s.send(post(newKey(), orderBody)).want(t, 410, reprise.CodeKeyExpired)
		s.wantRows("r", 0)
		s.send(post("a key without an age", orderBody)).want(t, 400, reprise.CodeKeyInvalid)
		s.send(post("a-key-without-an-age", orderBody)).want(t, 201, "")
		s.wantRows("r", 1)
	})
}
