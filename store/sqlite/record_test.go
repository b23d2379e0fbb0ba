// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
)

// TestCollision stores the record of one intent under the id of another, which
// no two keys that anybody found do by themselves.
func TestCollision(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	if err := f.place("a"); err != nil {
		t.Fatal(err)
	}
	stranger := claim("b")
	id := stranger.Intent.ID()
	if _, err := f.db.Exec("UPDATE reprise_ledger SET id = ?", id[:]); err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, *sql.Tx) (store.Completion, error) {
		t.Error("work was run")
		return store.Completion{}, nil
	}
	for name, call := range map[string]func() error{
		"Execute": func() error { _, _, err := f.Execute(t.Context(), stranger, never); return err },
		"Execute, repeated": func() error {
			again := stranger
			again.Number = 2
			_, _, err := f.Execute(t.Context(), again, never)
			return err
		},
		"Find":    func() error { _, err := f.Find(t.Context(), stranger.Intent); return err },
		"Resolve": func() error { _, err := f.Resolve(t.Context(), stranger.Intent); return err },
		"Begin":   func() error { _, _, err := f.Begin(t.Context(), stranger, nil, time.Second); return err },
	} {
		if err := call(); err == nil || errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "two intents have one id") {
			t.Errorf("%s: error %v, want that of a collision", name, err)
		}
	}
	if n := f.count("SELECT count(*) FROM reprise_ledger WHERE key = 'a'"); n != 1 {
		t.Error("the record of the first intent is gone")
	}
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{"token = x'00'", "fingerprint = x''", "headers = '{'", "headers = '[1]'", `headers = '{"A":["Ā"]}'`} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			f := setup(t, nil)
			if err := f.place("a"); err != nil {
				t.Fatal(err)
			}
			if _, err := f.db.Exec("UPDATE reprise_ledger SET " + damage); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Find(t.Context(), intent("a")); err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("Find: error %v", err)
			}
			if err := f.place("a"); err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("Execute: error %v", err)
			}
			if n := f.orders(); n != 1 {
				t.Errorf("%d orders, want 1", n)
			}
		})
	}
}

// TestEpochs: an owner from the former life of a run never owns the next one.
func TestEpochs(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	first, owned, err := f.Begin(t.Context(), claim("a"), nil, time.Hour)
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	old := store.Ownership{ID: first.ID, Epoch: first.Epoch}
	if err := f.Withdraw(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	second, owned, err := f.Begin(t.Context(), claim("a"), nil, time.Hour)
	if err != nil || !owned || second.Epoch <= first.Epoch {
		t.Fatalf("epoch %d after %d, owned %v, %v", second.Epoch, first.Epoch, owned, err)
	}
	if err := f.Renew(t.Context(), old, time.Hour); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("the old owner could renew: %v", err)
	}
}
