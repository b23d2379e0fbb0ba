// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// shop is a ledger over a SQLite file, with the rows of a small business beside
// it.
type shop struct {
	t      *testing.T
	file   string
	db     *sql.DB
	driver *sqlite.Driver
	ledger *ledger.Ledger[*sql.Tx]
}

// openShop opens a new file, and reopen another process's view of it.
func openShop(t *testing.T, c *ledger.Config) *shop {
	t.Helper()
	s := (&shop{t: t, file: filepath.Join(t.TempDir(), "shop.db")}).reopen(c)
	if err := migrate.Up(t.Context(), s.driver); err != nil {
		t.Fatal(err)
	}
	err := s.driver.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT NOT NULL)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) reopen(c *ledger.Config) *shop {
	s.t.Helper()
	db, err := sql.Open("sqlite", s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	d, err := sqlite.New(context.Background(), db, &sqlite.Options{BusyTimeout: 100 * time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := ledger.New[*sql.Tx](d, c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			s.t.Error(err)
		}
		if err := db.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return &shop{t: s.t, file: s.file, db: db, driver: d, ledger: l}
}

// order writes an order and its event, as a handler does.
func (s *shop) order(ctx context.Context, tx *sql.Tx, what string) (id int64, err error) {
	r, err := tx.ExecContext(ctx, "INSERT INTO orders (what) VALUES (?)", what)
	if err != nil {
		return 0, err
	}
	if id, err = r.LastInsertId(); err != nil {
		return 0, err
	}
	return id, s.driver.Enqueue(ctx, tx, reprise.Message{
		ID: fmt.Sprintf("order-%d", id), Source: "/shop", Type: "order.created", Time: time.Now(), Data: []byte("{}"),
	})
}

// ordering is the work of an intent that orders what.
func (s *shop) ordering(what string) ledger.Work[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		id, err := s.order(ctx, tx, what)
		if err != nil {
			return reprise.Result{}, err
		}
		return reprise.Result{
			Status:    201,
			Header:    map[string][]string{"Content-Type": {"application/json"}, "Location": {fmt.Sprintf("/orders/%d", id)}},
			Body:      fmt.Appendf(nil, `{"id":%d,"what":%q}`, id, what),
			Reference: fmt.Sprintf("/orders/%d", id),
		}, nil
	}
}

// count runs a query for one number.
func (s *shop) count(query string) int {
	s.t.Helper()
	var n int
	if err := s.db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// effects fails the test unless there are exactly so many orders, and as many
// events.
func (s *shop) effects(orders int) {
	s.t.Helper()
	if n := s.count("SELECT count(*) FROM orders"); n != orders {
		s.t.Errorf("%d orders, want %d", n, orders)
	}
	if n := s.count("SELECT count(*) FROM reprise_outbox"); n != orders {
		s.t.Errorf("%d events, want %d", n, orders)
	}
}

// sql changes stored rows, such as their age.
func (s *shop) sql(query string) {
	s.t.Helper()
	err := s.driver.Transact(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, query)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return fmt.Errorf("%q changed %d rows: %w", query, n, err)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
