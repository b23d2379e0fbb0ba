// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/reprise-go/reprise/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lend puts raw under guard, with boundaries that can be seen on the tape.
func lend(t *testing.T, raw driver.Conn, tp *tape) *Conn {
	t.Helper()
	c := New(raw, Rules{
		Begin:    func(context.Context, *Conn) error { return tp.say("BEGIN") },
		Commit:   func(context.Context, *Conn) error { return tp.say("COMMIT") },
		Rollback: func(context.Context, *Conn) error { return tp.say("ROLLBACK") },
		Refuse: func(query string) error {
			if strings.Contains(query, "COMMIT") {
				return errors.New("no COMMIT")
			}
			return nil
		},
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if tp.open != 0 {
			t.Errorf("%d rows and statements of the raw connection are not closed", tp.open)
		}
		if tp.has("close connection") {
			t.Error("the raw connection was closed, which is its owner's to do")
		}
	})
	return c
}

func begin(t *testing.T, c *Conn) *Tx {
	t.Helper()
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestTx(t *testing.T) {
	t.Parallel()

	t.Run("is committed by its owner", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		tx := begin(t, c)
		res, err := tx.SQL().ExecContext(t.Context(), "INSERT ?", 1)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := res.RowsAffected(); n != 7 {
			t.Errorf("RowsAffected is %d, want the raw driver's 7", n)
		}
		if err := errors.Join(tx.Commit(t.Context()), tx.Rollback(t.Context())); err != nil {
			t.Fatal(err)
		}
		if want := []string{"BEGIN", "exec directly INSERT ? [1]", "COMMIT"}; !slices.Equal(tp.said, want) {
			t.Errorf("the connection was told %q, want %q", tp.said, want)
		}
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT ?", 2); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("afterwards: error %v, want sql.ErrTxDone", err)
		}
	})

	t.Run("is rolled back by its owner, once", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		if err := errors.Join(tx.Rollback(t.Context()), tx.Rollback(t.Context())); err != nil {
			t.Fatal(err)
		}
		if want := []string{"BEGIN", "ROLLBACK"}; !slices.Equal(tp.said, want) {
			t.Errorf("the connection was told %q, want %q", tp.said, want)
		}
	})

	t.Run("stays the owner's to roll back when its COMMIT fails", func(t *testing.T) {
		t.Parallel()
		full := errors.New("full")
		tp := &tape{err: map[string]error{"COMMIT": full}}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		if err := tx.Commit(t.Context()); !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
		if err := tx.Rollback(t.Context()); err != nil || !tp.has("ROLLBACK") {
			t.Errorf("ROLLBACK after a failed COMMIT: %v, %q", err, tp.said)
		}
	})

	t.Run("that can't begin leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		tp := &tape{err: map[string]error{"BEGIN": errors.New("busy")}}
		if _, err := lend(t, richConn{plainConn{tp}}, tp).Begin(t.Context()); err == nil {
			t.Error("no error")
		}
	})

	for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		t.Run("L10 refuses its handler's "+name, func(t *testing.T) {
			t.Parallel()
			tp := &tape{}
			tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
			if err := end(tx.SQL()); !errors.Is(err, store.ErrTxMisuse) || !strings.Contains(err.Error(), `don't "defer tx.Rollback()"`) {
				t.Errorf("error %v, want ErrTxMisuse and what to do", err)
			}
			if err := tx.Commit(t.Context()); !errors.Is(err, store.ErrTxMisuse) || tp.has("COMMIT") {
				t.Errorf("the owner could commit (%v)", err)
			}
			if err := tx.Rollback(t.Context()); err != nil || !tp.has("ROLLBACK") {
				t.Errorf("the owner could not roll back (%v)", err)
			}
		})
	}

	t.Run("L10 is sealed against goroutines that its handler left behind", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		if err := tx.Seal(); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT"); !errors.Is(err, store.ErrTxMisuse) {
			t.Errorf("error %v, want ErrTxMisuse", err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("the owner could not commit: %v", err)
		}
		if tp.has("exec directly INSERT []") {
			t.Error("the late statement was executed")
		}
	})

	t.Run("runs one statement at a time, however many goroutines use it", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		tx := begin(t, c)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					var n int
					_ = tx.SQL().QueryRowContext(t.Context(), "SELECT").Scan(&n)
					_, _ = tx.SQL().ExecContext(t.Context(), "INSERT")
				}
			})
			wg.Go(func() {
				for range 50 {
					_, _ = c.Exec(context.Background(), "OWN")
				}
			})
		}
		wg.Wait()
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPoison(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails string
		use   func(context.Context, *sql.Tx) error
	}{
		"exec": {"exec directly BAD", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "BAD")
			return err
		}},
		"query": {"query directly BAD", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, "BAD")
			return err
		}},
		"prepare": {"prepare BAD", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.PrepareContext(ctx, "BAD")
			return err
		}},
		"prepared exec": {"exec prepared BAD", func(ctx context.Context, tx *sql.Tx) error {
			s, err := tx.PrepareContext(ctx, "BAD")
			if err != nil {
				return errors.New("too early")
			}
			_, err = s.ExecContext(ctx)
			return err
		}},
		"prepared query": {"query prepared BAD", func(ctx context.Context, tx *sql.Tx) error {
			s, err := tx.PrepareContext(ctx, "BAD")
			if err != nil {
				return errors.New("too early")
			}
			_, err = s.QueryContext(ctx)
			return err
		}},
		"reading rows": {"next", func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT")
			if err != nil {
				return errors.New("too early")
			}
			for rows.Next() {
			}
			return rows.Err()
		}},
		"the next result set": {"next result set", func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT")
			if err != nil {
				return errors.New("too early")
			}
			for rows.Next() {
			}
			_ = rows.NextResultSet()
			return rows.Err()
		}},
		"closing rows": {"close rows", func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT")
			if err != nil {
				return errors.New("too early")
			}
			return rows.Close()
		}},
	} {
		t.Run("L10 after an error of "+name, func(t *testing.T) {
			t.Parallel()
			bad := errors.New("bad")
			tp := &tape{err: map[string]error{c.fails: bad}}
			tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
			if err := c.use(t.Context(), tx.SQL()); !errors.Is(err, bad) || errors.Is(err, store.ErrTxMisuse) {
				t.Errorf("error %v, want the database's own", err)
			}
			refused(t, tx, tp, bad)
		})
	}

	t.Run("L10 after an argument that can't be converted", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT", make(chan int)); err == nil {
			t.Error("no error")
		}
		refused(t, tx, tp, nil)
	})

	t.Run("L10 after a lost connection, which database/sql does not get to mend", func(t *testing.T) {
		t.Parallel()
		tp := &tape{err: map[string]error{"exec directly BAD": driver.ErrBadConn}}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		if _, err := tx.SQL().ExecContext(t.Context(), "BAD"); err == nil || errors.Is(err, driver.ErrBadConn) {
			t.Errorf("error %v", err)
		}
		refused(t, tx, tp, nil)
	})
}

// refused asserts that the transaction takes nothing more and can't be committed.
func refused(t *testing.T, tx *Tx, tp *tape, first error) {
	t.Helper()
	_, next := tx.SQL().ExecContext(t.Context(), "INSERT")
	for _, err := range []error{next, tx.Err(), tx.Commit(t.Context())} {
		if !errors.Is(err, store.ErrTxMisuse) || first != nil && !errors.Is(err, first) {
			t.Errorf("error %v, want ErrTxMisuse around the first", err)
		}
	}
	if first != nil && !errors.Is(tx.FirstError(), first) {
		t.Errorf("FirstError is %v", tx.FirstError())
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if tp.has("exec directly INSERT []") || tp.has("COMMIT") {
		t.Errorf("something was executed after the error: %q", tp.said)
	}
}

func TestForwarding(t *testing.T) {
	t.Parallel()

	t.Run("a driver with nothing optional works", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, plainConn{tp}, tp)
		tx := begin(t, c)
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT ?", 1); err != nil {
			t.Error(err)
		}
		rows, err := tx.SQL().QueryContext(t.Context(), "SELECT ?", "x")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		columns, err := rows.ColumnTypes()
		if n != 3 || rows.NextResultSet() || rows.Err() != nil || err == nil {
			t.Errorf("%d rows, %v; ColumnTypes of closed rows: %v %v", n, rows.Err(), columns, err)
		}
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT", sql.Named("a", 1)); err == nil {
			t.Error("a named argument was taken, which the driver can't have")
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if n, err := c.Exec(t.Context(), "OWN ?", 5); n != 1 || err != nil || !tp.has("exec OWN ? [5]") {
			t.Errorf("the owner's statement: %d %v", n, err)
		}
		if err := c.Script(t.Context(), "SCRIPT"); err != nil || !tp.has("exec SCRIPT []") {
			t.Errorf("the owner's script: %v", err)
		}
	})

	t.Run("a driver with everything keeps it", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		tx := begin(t, c)
		rows, err := tx.SQL().QueryContext(t.Context(), "SELECT ?", special{"x"})
		if err != nil {
			t.Fatal(err)
		}
		types, err := rows.ColumnTypes()
		if err != nil {
			t.Fatal(err)
		}
		length, _ := types[0].Length()
		nullable, _ := types[0].Nullable()
		precision, scale, _ := types[0].DecimalSize()
		if types[0].ScanType() != reflect.TypeFor[int32]() || types[0].DatabaseTypeName() != "INT4" ||
			length != 4 || !nullable || precision != 10 || scale != 2 {
			t.Errorf("the column's type is %+v", types[0])
		}
		n := 0
		for more := true; more; more = rows.NextResultSet() {
			for rows.Next() {
				n++
			}
		}
		if n != 2 || rows.Err() != nil {
			t.Errorf("%d rows of two result sets, %v", n, rows.Err())
		}
		_ = rows.Close()
		s, err := tx.SQL().PrepareContext(t.Context(), "PREPARED ?")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ExecContext(t.Context(), special{"y"}); err != nil {
			t.Error(err)
		}
		if _, err := tx.SQL().ExecContext(t.Context(), "DIRECT ?", t.Context(), 3); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"query directly SELECT ? [special x]", "exec prepared PREPARED ? [special y]", "exec directly DIRECT ? [3]"} {
			if !tp.has(want) {
				t.Errorf("%q is not among %q", want, tp.said)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	})

	t.Run("a statement with the old ColumnConverter converts", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx := begin(t, lend(t, convertingConn{plainConn{tp}}, tp))
		if _, err := tx.SQL().ExecContext(t.Context(), "INSERT ?", 5); err != nil {
			t.Error(err)
		}
		if !tp.has("exec INSERT ? [column 0 5]") {
			t.Errorf("the connection was told %q", tp.said)
		}
		_ = tx.Rollback(t.Context())
	})

	t.Run("statements and rows left open are closed with the transaction", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		if _, err := tx.SQL().PrepareContext(t.Context(), "LEFT"); err != nil {
			t.Fatal(err)
		}
		rows, err := tx.SQL().QueryContext(t.Context(), "SELECT")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tp.open != 0 {
			t.Errorf("%d left open", tp.open)
		}
		if want := "close rows"; slices.Index(tp.said, want) > slices.Index(tp.said, "COMMIT") {
			t.Errorf("the rows were closed after COMMIT: %q", tp.said)
		}
	})

	t.Run("raw bytes that a handler holds on to don't hold up its owner", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		tx := begin(t, lend(t, richConn{plainConn{tp}}, tp))
		rows, err := tx.SQL().QueryContext(t.Context(), "SELECT")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil { // hangs if it waits for rows.Close
			t.Fatal(err)
		}
		if string(raw) != "0" {
			t.Errorf("the bytes were changed to %q", raw)
		}
		if rows.Next() {
			t.Error("rows went on after their transaction")
		}
		_ = rows.Close()
	})
}

func TestConn(t *testing.T) {
	t.Parallel()

	t.Run("prepares the owner's statements once", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		for range 3 {
			if _, err := c.Exec(context.Background(), "OWN"); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(tp.said); n != 4 {
			t.Errorf("the connection was told %q", tp.said)
		}
	})

	t.Run("does not use a statement again that has failed", func(t *testing.T) {
		t.Parallel()
		bad := errors.New("bad")
		tp := &tape{err: map[string]error{"exec prepared OWN": bad}}
		c := lend(t, richConn{plainConn{tp}}, tp)
		if _, err := c.Exec(context.Background(), "OWN"); !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
		tp.err = nil
		if n, err := c.Exec(context.Background(), "OWN"); n != 8 || err != nil {
			t.Errorf("again: %d %v", n, err)
		}
		if want := []string{"prepare OWN", "exec prepared OWN []", "close OWN", "prepare OWN", "exec prepared OWN []"}; !slices.Equal(tp.said, want) {
			t.Errorf("the connection was told %q", tp.said)
		}
	})

	t.Run("stops reading rows at an error of their reader", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, plainConn{tp}, tp)
		enough := errors.New("enough")
		n := 0
		err := c.Query(t.Context(), func([]driver.Value) error {
			if n++; n == 2 {
				return enough
			}
			return nil
		}, "SELECT")
		if !errors.Is(err, enough) || n != 2 {
			t.Errorf("%d rows, error %v", n, err)
		}
	})

	t.Run("is not to be used as a database", func(t *testing.T) {
		t.Parallel()
		tp := &tape{}
		c := lend(t, richConn{plainConn{tp}}, tp)
		if _, err := c.shadow.db.BeginTx(t.Context(), nil); err == nil {
			t.Error("a transaction began that nobody lent")
		}
		if _, err := c.shadow.db.Driver().Open("x"); err == nil {
			t.Error("the driver opened something")
		}
	})
}
