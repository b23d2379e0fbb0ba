// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

// TestLostMessages cuts the connection before and after the server has had each
// message of an execution. What the driver says must be true of what is there.
func TestLostMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		at       func(message []byte) bool
		answered bool
		// unknown says that nobody can know; kept is what Resolve must find out.
		unknown, kept bool
	}{
		{name: "the claim is lost", at: holds("START TRANSACTION")},
		{name: "the answer to the claim is lost", at: holds("START TRANSACTION"), answered: true},
		{name: "the second statement is lost", at: holds("second")},
		{name: "the answer to the second statement is lost", at: holds("second"), answered: true},
		{name: "COMMIT is lost", at: ends("COMMIT"), unknown: true},
		{name: "the answer to COMMIT is lost", at: ends("COMMIT"), answered: true, unknown: true, kept: true},
	} {
		for way, params := range both {
			t.Run(c.name+", "+way, func(t *testing.T) {
				t.Parallel()
				b := newBed(t)
				p := newProxy(t, dbtest.MariaDB(t).Addr(), c.at, c.answered)
				dsn := strings.Replace(b.dsn, dbtest.MariaDB(t).Addr(), p.addr(), 1) + params
				d, err := mysql.New(t.Context(), openDB(t, dsn), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = d.Close() })
				p.armed.Store(true)
				mine := claim("k")
				work := func(ctx context.Context, tx *sql.Tx) error {
					if err := order(ctx, tx, "first"); err != nil {
						return err
					}
					return order(ctx, tx, "second")
				}
				_, executed, err := execute(t.Context(), d, mine, work)
				if p.cuts.Load() != 1 {
					t.Fatalf("the proxy has cut %d connections; the test proves nothing", p.cuts.Load())
				}
				switch {
				case errors.Is(err, store.ErrCommitUnknown) != c.unknown:
					t.Errorf("error %v; commit unknown should be %t", err, c.unknown)
				case err != nil && !c.unknown && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrBusy):
					// Busy is what a second connection finds while the server still has the
					// claim of the first one.
					t.Errorf("error %v, want ErrUnavailable or ErrBusy", err)
				}
				want := 0
				if c.kept || executed {
					want = 1 // a claim that never arrived may be made on another connection
				}
				e, err := resolve(t.Context(), d, intent("k"))
				if want == 1 && (err != nil || e.Token != mine.Token || e.State != reprise.StateCompleted) {
					t.Errorf("resolved as %s, own token %t, error %v; want the record", e.State, e.Token == mine.Token, err)
				}
				if want == 0 && !errors.Is(err, store.ErrNotFound) {
					t.Errorf("resolved as %s, error %v; want the certainty that nothing was kept", e.State, err)
				}
				b.wantOrders("first", want)
				if _, again, err := execute(t.Context(), d, claim("k"), work); err != nil || again != (want == 0) {
					t.Errorf("the next attempt: executed %t, error %v", again, err)
				}
				b.wantOrders("first", 1)
				b.wantOrders("second", 1)
			})
		}
	}
}

// resolve asks until the answer is known.
func resolve(ctx context.Context, d *mysql.Driver, in reprise.Intent) (e store.Entry, err error) {
	err = again(ctx, func() error {
		e, err = d.Resolve(ctx, in)
		return err
	})
	return e, err
}

// TestKilledConnections has the server end a connection between two statements of
// a handler, while one runs, and while it is idle in the pool.
func TestKilledConnections(t *testing.T) {
	t.Parallel()
	for way, params := range both {
		t.Run("between two statements, "+way, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			d := b.open(params)
			_, executed, err := execute(t.Context(), d, claim("k"), func(ctx context.Context, tx *sql.Tx) error {
				var id int
				if err := errors.Join(order(ctx, tx, "one"), tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id)); err != nil {
					return err
				}
				b.exec(fmt.Sprintf("KILL %d", id))
				if order(ctx, tx, "two") == nil {
					t.Error("a statement on a killed connection succeeded")
				}
				return nil
			})
			if executed || !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("executed %t, error %v; want ErrUnavailable", executed, err)
			}
			b.wantOrders("one", 0)
			// The server may still be rolling back.
			err = again(t.Context(), func() (err error) {
				_, executed, err = execute(t.Context(), d, claim("k"), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, "one") })
				return err
			})
			if err != nil || !executed {
				t.Errorf("the next attempt: executed %t, error %v", executed, err)
			}
			b.wantOrders("one", 1)
		})
	}

	t.Run("idle in the pool", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		db := openDB(t, b.dsn+together+"&checkConnLiveness=false") // so that it is the driver who finds out
		db.SetMaxOpenConns(1)
		d, err := mysql.New(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		for n, do := range []func(ctx context.Context, tx *sql.Tx) error{
			func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, "rides") },
			func(ctx context.Context, tx *sql.Tx) error {
				s, err := tx.PrepareContext(ctx, "INSERT INTO orders (ref) VALUES (?)")
				if err != nil {
					return err
				}
				_, err = s.ExecContext(ctx, "prepared")
				return errors.Join(err, s.Close())
			},
		} {
			var id int
			if err := db.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				t.Fatal(err)
			}
			b.exec(fmt.Sprintf("KILL %d", id))
			if _, executed, err := execute(t.Context(), d, claim(fmt.Sprint(n)), do); err != nil || !executed {
				t.Errorf("executed %t, error %v", executed, err)
			}
		}
		b.wantOrders("rides", 1)
		b.wantOrders("prepared", 1)
	})
}

// TestUnavailable has the server refuse connections and writes.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	work := func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, "never") }

	readOnly := b.open(together + "&tx_read_only=1")
	if _, executed, err := execute(t.Context(), readOnly, claim("k"), work); executed || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read only: executed %t, error %v; want ErrUnavailable", executed, err)
	}

	name := strings.TrimPrefix(b.dsn[strings.LastIndex(b.dsn, "/"):], "/")
	user := "one_" + name
	b.exec("CREATE USER " + user + "@'%' WITH MAX_USER_CONNECTIONS 1")
	t.Cleanup(func() { _, _ = openDB(t, b.dsn).Exec("DROP USER " + user) })
	b.exec("GRANT ALL ON " + name + ".* TO " + user)
	db := openDB(t, strings.Replace(b.dsn, "root@", user+"@", 1)+together)
	crowded, err := mysql.New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = crowded.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, executed, err := execute(t.Context(), crowded, claim("k"), work); executed || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("too many connections: executed %t, error %v; want ErrUnavailable", executed, err)
	}
	_ = conn.Close()
	if _, executed, err := execute(t.Context(), crowded, claim("k"), func(context.Context, *sql.Tx) error { return nil }); err != nil || !executed {
		t.Errorf("once there is room: executed %t, error %v", executed, err)
	}
	b.wantOrders("never", 0)
}
