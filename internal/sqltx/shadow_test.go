// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
)

func TestShadow(t *testing.T) {
	t.Parallel()

	t.Run("lends many connections at once, each to its own transaction", func(t *testing.T) {
		t.Parallel()
		s := NewShadow()
		t.Cleanup(func() { _ = s.Close() })
		for range 2 { // the second time with the guards of the first
			var tapes [3]*tape
			var lent [3]*Tx
			for i := range tapes {
				tapes[i] = &tape{}
				tp := tapes[i]
				c := s.Conn(richConn{plainConn{tp}}, Rules{
					Begin:    func(context.Context, *Conn) error { return tp.say("BEGIN") },
					Commit:   func(context.Context, *Conn) error { return tp.say("COMMIT") },
					Rollback: func(context.Context, *Conn) error { return tp.say("ROLLBACK") },
					Refuse:   func(string) error { return nil },
				})
				lent[i] = begin(t, c)
			}
			for i, tx := range lent {
				if _, err := tx.SQL().ExecContext(t.Context(), "INSERT ?", i); err != nil {
					t.Fatal(err)
				}
			}
			for i, tx := range lent {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := []string{"BEGIN", "exec directly INSERT ? [" + string(rune('0'+i)) + "]", "COMMIT"}
				if !slices.Equal(tapes[i].said, want) {
					t.Errorf("connection %d was told %q, want %q", i, tapes[i].said, want)
				}
			}
		}
	})

	t.Run("stays open when a connection is given back", func(t *testing.T) {
		t.Parallel()
		s := NewShadow()
		t.Cleanup(func() { _ = s.Close() })
		for range 2 {
			tp := &tape{}
			say := func(what string) func(context.Context, *Conn) error {
				return func(context.Context, *Conn) error { return tp.say("%s", what) }
			}
			c := s.Conn(plainConn{tp}, Rules{Begin: say("BEGIN"), Commit: say("COMMIT"), Rollback: say("ROLLBACK")})
			tx := begin(t, c)
			if err := errors.Join(tx.Rollback(t.Context()), c.Close()); err != nil {
				t.Error(err)
			}
			if want := []string{"BEGIN", "ROLLBACK"}; !slices.Equal(tp.said, want) {
				t.Errorf("the connection was told %q, want %q", tp.said, want)
			}
		}
	})
}

func TestText(t *testing.T) {
	t.Parallel()

	t.Run("is sent as it is, and answered with the raw driver's result", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		res, err := c.Text(context.Background(), "A; B")
		if res != driver.RowsAffected(7) || err != nil {
			t.Errorf("result %v, error %v", res, err)
		}
		if want := []string{"exec directly A; B []"}; !slices.Equal(tp.said, want) {
			t.Errorf("the connection was told %q, want %q", tp.said, want)
		}
	})

	t.Run("reads the rows of every result set", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		n := 0
		err := c.TextRows(context.Background(), func([]driver.Value) error { n++; return nil }, "A; B")
		if n != 2 || err != nil {
			t.Errorf("%d rows, error %v; want 2", n, err)
		}
	})

	t.Run("fails with a statement behind the rows", func(t *testing.T) {
		t.Parallel()
		bad := errors.New("bad")
		tp := &tape{err: map[string]error{"next result set": bad}}
		c := lend(t, richConn{plainConn{tp}}, tp)
		err := c.TextRows(context.Background(), func([]driver.Value) error { return nil }, "A; B")
		if !errors.Is(err, bad) {
			t.Errorf("error %v, want that of the second statement", err)
		}
	})

	t.Run("needs a driver that doesn't prepare", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, plainConn{tp}, tp)
		if _, err := c.Text(context.Background(), "A"); !errors.Is(err, errNoText) {
			t.Errorf("error %v", err)
		}
		if err := c.TextRows(context.Background(), nil, "A"); !errors.Is(err, errNoText) || len(tp.said) > 0 {
			t.Errorf("error %v, and the connection was told %q", err, tp.said)
		}
	})
}
