// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store/migrate"
)

// TestPurgeIsInNobodysWay leaves a purge open with its locks: claims, repeats,
// runs and another purge go on beside it.
func TestPurgeIsInNobodysWay(t *testing.T) {
	t.Parallel()
	// What waits for a lock of the purge fails; the server's own locks are short.
	f := setup(t, nil, "lock_timeout=5s")
	old := make([]reprise.Intent, 4)
	for i := range old {
		old[i] = intent(reprise.Key(fmt.Sprintf("old-%d", i)))
		f.mustOrder(old[i])
	}
	f.exec(strings.Join(age(2*time.Hour), "; ")) // bodies have ended
	tx, err := f.plain.BeginTx(f.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	locked, err := tx.ExecContext(f.ctx, "UPDATE reprise_ledger SET state = 'tombstone', due_at = tombstone_until WHERE id IN "+
		"(SELECT id FROM reprise_ledger ORDER BY due_at LIMIT 2 FOR UPDATE SKIP LOCKED)")
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := locked.RowsAffected(); n != 2 {
		t.Fatalf("%d rows are locked: nothing was tested", n)
	}
	for _, in := range old {
		if e, executed, err := f.order(f.ctx, claim(in), nil); err != nil || executed || e.State != reprise.StateTombstone {
			t.Errorf("a repeat of %q: %q, executed %t, error %v", in.Key, e.State, executed, err)
		}
	}
	f.mustOrder(intent("fresh"))
	if _, owned, err := f.Begin(f.ctx, claim(intent("run")), nil, time.Hour); err != nil || !owned {
		t.Errorf("a run: owned %t, error %v", owned, err)
	}
	if n, err := f.Purge(f.ctx, 10); err != nil || n != 2 {
		t.Errorf("another purge changed %d, error %v; want the 2 that are left", n, err)
	}
}

// TestPurgeLooksAtWhatIsDue makes sure that it finds what is due by the index,
// and does not read the ledger for it.
func TestPurgeLooksAtWhatIsDue(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.exec("INSERT INTO reprise_ledger (claimed_at, completed_at, expires_at, tombstone_until, due_at, id, token, state, fingerprint, caller, operation, key) " +
		"SELECT now(), now(), now() + interval '1 day', now() + interval '2 days', now() + interval '1 day', gen_random_uuid(), gen_random_uuid(), 'completed', '', '', '', '' " +
		"FROM generate_series(1, 5000)")
	f.exec("ANALYZE reprise_ledger")
	f.db.SetMaxOpenConns(1) // What a session has counted it hands in itself.
	const rounds = 3
	for range rounds {
		if n, err := f.Purge(f.ctx, 100); err != nil || n != 0 {
			t.Fatalf("changed %d, error %v", n, err)
		}
	}
	if _, err := f.db.ExecContext(f.ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
		t.Fatal(err)
	}
	if n := f.count("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelid = 'reprise_ledger_due'::regclass"); n < rounds {
		t.Errorf("the index was asked %d times in %d purges", n, rounds)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	dsn := createSchema(t)
	var wg sync.WaitGroup
	for range 6 {
		d := mustNew(t, openDB(t, dsn), nil)
		wg.Go(func() {
			if err := migrate.Up(t.Context(), d); err != nil {
				t.Errorf("at once with others: %v", err)
			}
			if err := migrate.Verify(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	db := openDB(t, dsn)
	if _, err := db.ExecContext(t.Context(), "INSERT INTO reprise_migration VALUES (2, 'from the future')"); err != nil {
		t.Fatal(err)
	}
	d := mustNew(t, db, nil)
	for _, err := range []error{migrate.Up(t.Context(), d), migrate.Verify(t.Context(), d)} {
		if !errors.Is(err, migrate.ErrNewer) {
			t.Errorf("a newer schema: %v, want ErrNewer", err)
		}
	}

	// Those who use a tool of their own run the text.
	bare := openDB(t, createSchema(t))
	d = mustNew(t, bare, nil)
	if err := migrate.Verify(t.Context(), d); !errors.Is(err, migrate.ErrBehind) {
		t.Errorf("an empty schema: %v, want ErrBehind", err)
	}
	text, err := migrate.SQL(d)
	if err == nil {
		_, err = bare.ExecContext(t.Context(), text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate.Verify(t.Context(), d); err != nil {
		t.Error(err)
	}
}
