// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"errors"
	"slices"
	"testing"
)

func TestRide(t *testing.T) {
	t.Parallel()

	// ride lends a transaction on raw and notes the answers to its begin.
	ride := func(t *testing.T, c *Conn) (*Tx, *[]error) {
		t.Helper()
		answers := &[]error{}
		tx, err := c.Ride(t.Context(), Ahead{Text: "BEGIN;CLAIM;", Answered: func(err error) { *answers = append(*answers, err) }})
		if err != nil {
			t.Fatal(err)
		}
		return tx, answers
	}

	for name, first := range map[string]struct {
		run  func(t *testing.T, tx *Tx)
		said []string
	}{
		"Exec": {
			func(t *testing.T, tx *Tx) {
				t.Helper()
				for range 2 {
					if _, err := tx.SQL().ExecContext(t.Context(), "INSERT ?", 1); err != nil {
						t.Error(err)
					}
				}
			},
			[]string{"exec directly BEGIN;CLAIM;INSERT ? [1]", "exec directly INSERT ? [1]", "COMMIT"},
		},
		"Query": {
			func(t *testing.T, tx *Tx) {
				t.Helper()
				rows, err := tx.SQL().QueryContext(t.Context(), "SELECT")
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(rows.Close(), rows.Err()); err != nil {
					t.Error(err)
				}
			},
			[]string{"query directly BEGIN;CLAIM;SELECT []", "close rows", "COMMIT"},
		},
		"Prepare, which can't carry it": {
			func(t *testing.T, tx *Tx) {
				t.Helper()
				s, err := tx.SQL().PrepareContext(t.Context(), "INSERT")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.ExecContext(t.Context()); err != nil {
					t.Error(err)
				}
			},
			[]string{"exec directly BEGIN;CLAIM; []", "prepare INSERT", "exec prepared INSERT []", "COMMIT", "close INSERT"},
		},
	} {
		t.Run("the begin goes with "+name, func(t *testing.T) {
			t.Parallel()
			tp := &tape{}
			tx, answers := ride(t, lend(t, richConn{plainConn{tp}}, tp))
			if tx.Rode() || len(tp.said) > 0 {
				t.Errorf("before any statement the connection was told %q", tp.said)
			}
			first.run(t, tx)
			if !tx.Rode() || !slices.Equal(*answers, []error{nil}) {
				t.Errorf("rode %t, answers %v; want one, nil", tx.Rode(), *answers)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(tp.said, first.said) {
				t.Errorf("the connection was told %q, want %q", tp.said, first.said)
			}
		})
	}

	t.Run("an error of the message poisons the transaction", func(t *testing.T) {
		t.Parallel()
		bad := errors.New("duplicate")
		tp := &tape{err: map[string]error{"exec directly BEGIN": bad}}
		tx, answers := ride(t, lend(t, richConn{plainConn{tp}}, tp))
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT"); !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT"); err == nil {
			t.Error("a statement after the failed one was not refused")
		}
		if len(*answers) != 1 || !errors.Is((*answers)[0], bad) || !errors.Is(tx.FirstError(), bad) {
			t.Errorf("answers %v, first error %v", *answers, tx.FirstError())
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"exec directly BEGIN;CLAIM;INSERT []", "ROLLBACK"}; !slices.Equal(tp.said, want) {
			t.Errorf("the connection was told %q, want %q", tp.said, want)
		}
	})

	t.Run("a refused statement takes nothing along", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx, answers := ride(t, lend(t, richConn{plainConn{tp}}, tp))
		if _, err := tx.SQL().ExecContext(t.Context(), "COMMIT"); err == nil {
			t.Error("COMMIT was not refused")
		}
		if tx.Rode() || len(*answers) > 0 || len(tp.said) > 0 {
			t.Errorf("rode %t, answers %v, told %q", tx.Rode(), *answers, tp.said)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
