// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

func TestSmoke(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "t.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d, err := sqlite.New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 {
		if err := migrate.Up(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrate.Verify(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := d.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE o (id INTEGER PRIMARY KEY, v TEXT)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	in := reprise.Intent{Caller: "c", Operation: "op", Key: reprise.NewKey(), Fingerprint: reprise.Fingerprint{1}}
	for i := range 3 {
		e, executed, err := d.Execute(t.Context(), store.Claim{Intent: in, Token: store.Token{byte(i)}, Number: i + 1},
			func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
				if _, err := tx.ExecContext(ctx, "INSERT INTO o(v) VALUES (?)", "x"); err != nil {
					return store.Completion{}, err
				}
				if err := d.Enqueue(ctx, tx, reprise.Message{ID: "m1", Source: "/s", Type: "t", Data: []byte("{}"), Time: time.Now()}); err != nil {
					return store.Completion{}, err
				}
				return store.Completion{Result: reprise.Result{Status: 201, Header: map[string][]string{"A": {"\xff"}}}, Retention: time.Hour, Tombstone: time.Hour}, nil
			})
		if err != nil || executed != (i == 0) {
			t.Fatal(i, e, executed, err)
		}
		t.Logf("%+v", e)
	}
	r := d.Relay()
	slots, err := r.Acquire(t.Context(), "me", time.Second, 1)
	if err != nil || len(slots) != 1 {
		t.Fatal(slots, err)
	}
	p, err := r.Fetch(t.Context(), slots[0], 10)
	if err != nil || len(p.Messages) != 1 {
		t.Fatal(p, err)
	}
	if err := r.Advance(t.Context(), slots[0], p, []store.Hold{{Message: p.Messages[0], State: store.HoldRetry}}); err != nil {
		t.Fatal(err)
	}
	h, err := r.Due(t.Context(), slots[0], 10)
	if err != nil || len(h) != 1 {
		t.Fatal(h, err)
	}
	t.Logf("%+v", h)
	b, err := r.Backlog(t.Context())
	t.Logf("%+v %v", b, err)
}
