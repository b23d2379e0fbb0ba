// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCache(t *testing.T) {
	t.Parallel()

	// lendReusable is lend, with every query worth keeping.
	lendReusable := func(t *testing.T, raw driver.Conn, tp *tape) *Conn {
		t.Helper()
		c := lend(t, raw, tp)
		c.rules.Reusable = func(string) bool { return true }
		return c
	}
	exec := func(t *testing.T, c *Conn, query string, args ...any) error {
		t.Helper()
		tx := begin(t, c)
		_, err := tx.SQL().ExecContext(t.Context(), query, args...)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		return err
	}
	said := func(tp *tape, what string) (n int) {
		for _, s := range tp.said {
			if strings.HasPrefix(s, what) {
				n++
			}
		}
		return n
	}

	t.Run("prepares a handler's statement when it comes again, once", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for i := range 5 {
			if err := exec(t, c, "INSERT ?", i); err != nil {
				t.Fatal(err)
			}
		}
		if said(tp, "exec directly") != 1 || said(tp, "prepare") != 1 || said(tp, "exec prepared") != 4 {
			t.Errorf("the connection was told %q", tp.said)
		}
	})

	t.Run("asks the rules once for each query", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		asked := 0
		refuse := c.rules.Refuse
		c.rules.Refuse = func(query string) error { asked++; return refuse(query) }
		for range 3 {
			if err := exec(t, c, "INSERT"); err != nil {
				t.Fatal(err)
			}
			if err := exec(t, c, "COMMIT"); err == nil {
				t.Fatal("COMMIT was let through")
			}
		}
		if asked != 4 { // once for what passed, each time for what didn't
			t.Errorf("the rules were asked %d times", asked)
		}
	})

	t.Run("keeps nothing that is not worth it", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		long := "INSERT" + strings.Repeat(" ", cacheLength)
		for range 3 {
			if err := exec(t, c, "INSERT"); err != nil {
				t.Fatal(err)
			}
			c.rules.Reusable = func(string) bool { return true }
			if err := exec(t, c, long); err != nil {
				t.Fatal(err)
			}
			c.rules.Reusable = nil
		}
		if n := said(tp, "prepare"); n != 0 {
			t.Errorf("%d statements were prepared", n)
		}
	})

	t.Run("leaves conversion and counting of arguments to those who know", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for range 3 {
			if err := exec(t, c, "INSERT ?", 1, 2); err != nil { // one too many: the raw connection's own business
				t.Fatal(err)
			}
		}
		if n := said(tp, "exec directly INSERT ? [1 2]"); n != 3 {
			t.Errorf("the connection was told %q", tp.said)
		}
	})

	t.Run("does not keep a statement that has failed", func(t *testing.T) {
		t.Parallel()
		bad := errors.New("bad")
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for _, err := range []error{nil, nil, bad, nil} {
			tp.err = map[string]error{"exec prepared": err}
			if got := exec(t, c, "INSERT"); !errors.Is(got, err) {
				t.Errorf("error %v, want %v", got, err)
			}
		}
		if n := said(tp, "prepare"); n != 2 {
			t.Errorf("prepared %d times, want again after the failure: %q", n, tp.said)
		}
	})

	t.Run("says what is wrong with a query that can't be prepared", func(t *testing.T) {
		t.Parallel()
		bad := errors.New("syntax")
		tp := &tape{err: map[string]error{"prepare": errors.New("other"), "exec directly": bad}}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for range 3 {
			if err := exec(t, c, "INSERT"); !errors.Is(err, bad) {
				t.Errorf("error %v", err)
			}
		}
	})

	t.Run("does not lend a statement twice while its rows are open", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for range 2 {
			tx := begin(t, c)
			var open []*sql.Rows
			for range 3 {
				rows, err := tx.SQL().QueryContext(t.Context(), "SELECT")
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, rows)
			}
			for _, rows := range open[:2] { // the third is left open, and given back with the transaction
				_ = rows.Close()
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// First sight, prepared, busy; then prepared, busy, busy.
		if said(tp, "query directly") != 4 || said(tp, "query prepared") != 2 || said(tp, "prepare") != 1 {
			t.Errorf("the connection was told %q", tp.said)
		}
	})

	t.Run("does not keep a statement whose rows have failed", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for _, err := range []error{nil, errors.New("torn"), nil} {
			tp.err = map[string]error{"next": err}
			tx := begin(t, c)
			rows, qerr := tx.SQL().QueryContext(t.Context(), "SELECT")
			if qerr != nil {
				t.Fatal(qerr)
			}
			for rows.Next() {
			}
			if !errors.Is(rows.Err(), err) {
				t.Errorf("error %v, want %v", rows.Err(), err)
			}
			_ = tx.Rollback(context.Background())
		}
		if n := said(tp, "prepare"); n != 2 {
			t.Errorf("prepared %d times: %q", n, tp.said)
		}
	})

	t.Run("is bounded", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lendReusable(t, richConn{plainConn{tp}}, tp)
		for i := range 3 * cacheSize {
			for range 2 {
				if err := exec(t, c, fmt.Sprint("INSERT ", i)); err != nil {
					t.Fatal(err)
				}
			}
			if tp.open > cacheSize {
				t.Fatalf("%d statements are open", tp.open)
			}
		}
	})
}

func TestConverts(t *testing.T) {
	t.Parallel()
	plain := &plainStmt{tape: &tape{}}
	got := []bool{converts(plain), converts(converting{plain})}
	if !slices.Equal(got, []bool{false, true}) {
		t.Errorf("statements that convert: %v", got)
	}
}
