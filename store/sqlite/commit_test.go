// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/store"
)

func TestFailedCommit(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name string
		err  error
		lost bool // COMMIT was executed and only its answer is lost
		also string
		want error
		kept int
	}{
		{name: "a full disk is unavailable, and nothing is kept", err: coded(codeFull), want: store.ErrUnavailable},
		{name: "a lock is a conflict, and nothing is kept", err: coded(codeBusy), want: store.ErrConflict},
		{name: "an error that is not SQLite's, nothing kept, is unavailable", err: errInjected, want: store.ErrUnavailable},
		{name: "a lost answer is found out by the token", err: errInjected, lost: true, kept: 1},
		{name: "a lost answer and a lost connection are found out on another", err: errInjected, lost: true, also: "ROLLBACK", kept: 1},
		{name: "a failed sync that a further commit writes over is unavailable", err: coded(extendedFsync), want: store.ErrUnavailable},
		{name: "a failed sync that nothing writes over is unknown", err: coded(extendedFsync), also: "UPDATE reprise_outbox_slot", want: store.ErrCommitUnknown},
		{name: "a look-up that fails leaves it unknown", err: errInjected, lost: true, also: "SELECT 1 FROM reprise_ledger WHERE id = ? AND token", want: store.ErrCommitUnknown, kept: 1},
	} {
		t.Run("L7 "+c.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, nil)
			commit, fired := failing("COMMIT", 1, c.err)
			also, alsoFired := failing(c.also, 1, coded(codeIOErr))
			before := func(query string) error {
				if c.also != "" {
					return also(query)
				}
				return nil
			}
			if c.lost {
				f.hook.set(before, commit)
			} else {
				f.hook.set(func(query string) error { return errors.Join(commit(query), before(query)) }, nil)
			}
			errs := f.together(func() error { return f.place("a") }, func() error { return f.place("b") })
			if fired() != 1 || c.also != "" && alsoFired() != 1 {
				t.Fatal("the fault did not fire")
			}
			for _, err := range errs {
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
			}
			f.kept("a", c.kept)
			f.kept("b", c.kept)
			if err := f.place("c"); err != nil {
				t.Errorf("the next request: %v", err)
			}
			f.kept("c", 1)
		})
	}

	t.Run("L7 a lost answer without a row to know it by is unknown", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		commit, fired := failing("COMMIT", 1, errInjected)
		f.hook.set(nil, commit)
		err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, "a") })
		if fired() != 1 || !errors.Is(err, store.ErrCommitUnknown) {
			t.Errorf("error %v, want ErrCommitUnknown", err)
		}
		if n := f.orders(); n != 1 {
			t.Errorf("%d orders, want the one that was committed", n)
		}
	})

	t.Run("one that was rolled back by itself is never unknown", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		commit, fired := failing("COMMIT", 1, errInjected)
		f.hook.set(nil, commit)
		errs := f.together(func() error {
			return f.Transact(t.Context(), func(context.Context, *sql.Tx) error { return errors.New("refused") })
		})
		if fired() != 1 || !errors.Is(errs[0], store.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", errs[0])
		}
	})

	t.Run("the relay is woken by what was committed, and by nothing else", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		wake := f.Relay().Wake()
		commit, fired := failing("COMMIT", 1, coded(codeFull))
		f.hook.set(commit, nil)
		if err := f.place("a"); !errors.Is(err, store.ErrUnavailable) || fired() != 1 {
			t.Fatalf("error %v", err)
		}
		select {
		case <-wake:
			t.Error("a transaction that was rolled back woke the relay")
		default:
		}
		if err := f.place("b"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-wake:
		default:
			t.Error("a committed message did not wake the relay")
		}
	})
}

// TestEveryStatementFails fails the n-th statement of a keyed transaction, for
// n from 1 until a run ends without a hit: as it is sent or when it is answered,
// with an error of SQLite's or another, once or from then on.
func TestEveryStatementFails(t *testing.T) {
	t.Parallel()
	for _, err := range []error{coded(codeFull), errInjected} {
		for _, answer := range []bool{false, true} {
			for _, persistent := range []bool{false, true} {
				name := fmt.Sprintf("code %d, executed %v, persistent %v", code(err), answer, persistent)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					n := 1
					for ; statementFails(t, n, err, answer, persistent); n++ {
					}
					if n < 8 {
						t.Errorf("only %d statements failed; a keyed transaction has more", n-1)
					}
				})
			}
		}
	}
}

// statementFails reports whether the run had an n-th statement.
func statementFails(t *testing.T, n int, failure error, answer, persistent bool) (hit bool) {
	f := setup(t, nil)
	seen := 0
	fail := func(string) error {
		seen++
		if seen == n || persistent && seen > n {
			return failure
		}
		return nil
	}
	if answer {
		f.hook.set(nil, fail)
	} else {
		f.hook.set(fail, nil)
	}
	err := f.place("a")
	hit = seen >= n
	f.hook.set(nil, nil)

	resolved := false
	if errors.Is(err, store.ErrCommitUnknown) {
		_, rerr := f.Resolve(t.Context(), intent("a"))
		if rerr != nil && !errors.Is(rerr, store.ErrNotFound) {
			t.Errorf("statement %d: Resolve: %v", n, rerr)
		}
		resolved = rerr == nil
	}
	want := 0
	if err == nil || resolved {
		want = 1
	}
	f.kept("a", want)
	if err := f.place("a"); err != nil {
		t.Errorf("statement %d had failed with %v; the next attempt: %v", n, err, err)
	}
	f.kept("a", 1)
	if t.Failed() {
		t.Fatalf("statement %d of a keyed transaction, after which the answer was %v", n, err)
	}
	return hit
}
