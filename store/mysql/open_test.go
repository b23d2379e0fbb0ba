// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/mysql"
)

func TestNew(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDBDatabase(t)
	server := dsn[:strings.LastIndex(dsn, "/")+1]
	for name, bad := range map[string]struct{ dsn, says string }{
		"no database":     {server, "names no database"},
		"no autocommit":   {dsn + "?autocommit=0", "autocommit"},
		"nobody listens":  {"root@tcp(127.0.0.1:1)/x", "can't be reached"},
		"another account": {strings.Replace(dsn, "root@", "nobody:secret@", 1), "can't be reached"},
	} {
		if _, err := mysql.New(t.Context(), openDB(t, bad.dsn), nil); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, bad.says)
		}
	}
	if _, err := mysql.New(t.Context(), nil, nil); err == nil {
		t.Error("New took no database")
	}
	if _, err := mysql.New(t.Context(), openDB(t, dsn), &mysql.Options{DeliveredRetention: -1}); err == nil {
		t.Error("New took a negative retention")
	}
	for params, multi := range map[string]bool{"": false, "?multiStatements=true": true, together: true} {
		d, err := mysql.New(t.Context(), openDB(t, dsn+params), nil)
		if err != nil {
			t.Fatal(err)
		}
		if mariadb, galera, got := d.Server(); !mariadb || galera || got != multi {
			t.Errorf("%q: MariaDB %t, Galera %t, several statements %t", params, mariadb, galera, got)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.Find(t.Context(), intent("k")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after Close: %v, want ErrUnavailable", err)
		}
		if _, _, err := execute(t.Context(), d, claim("k"), nil); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after Close: %v, want ErrUnavailable", err)
		}
	}
}

// TestWithoutSchema checks that a missing schema is said to be one.
func TestWithoutSchema(t *testing.T) {
	t.Parallel()
	for name, params := range both {
		d, err := mysql.New(t.Context(), openDB(t, dbtest.MariaDBDatabase(t)+params), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = execute(t.Context(), d, claim("k"), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT 1")
			return err
		})
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "migrate up") {
			t.Errorf("%s: %v; want what to do", name, err)
		}
		if err := migrate.Verify(t.Context(), d); !errors.Is(err, migrate.ErrBehind) {
			t.Errorf("%s: %v, want ErrBehind", name, err)
		}
		_ = d.Close()
	}
}

// TestMigrateTogether has processes start on an empty database at once.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDBDatabase(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			d, err := mysql.New(t.Context(), openDB(t, dsn), nil)
			if err == nil {
				err = errors.Join(migrate.Up(t.Context(), d), migrate.Verify(t.Context(), d), d.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestMigrateInterrupted stops a migration behind some of its statements. The next
// one completes it, and what it leaves works.
func TestMigrateInterrupted(t *testing.T) {
	t.Parallel()
	var d *mysql.Driver
	text, err := fs.ReadFile(d.Migrations(), "001_start.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	statements := mysql.Split(string(text))
	if len(statements) < 10 {
		t.Fatalf("%d statements; the migration was not split", len(statements))
	}
	for done := 0; done < len(statements); done += 3 {
		dsn := dbtest.MariaDBDatabase(t)
		plain := openDB(t, dsn)
		for _, s := range statements[:done] {
			if _, err := plain.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		half, err := mysql.New(t.Context(), openDB(t, dsn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := migrate.Verify(t.Context(), half); !errors.Is(err, migrate.ErrBehind) {
			t.Errorf("behind %d statements: %v, want ErrBehind", done, err)
		}
		_ = half.Close()
		d := newDriver(t, dsn+together)
		err = d.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return d.Enqueue(ctx, tx, event("m-1", "a")) })
		if err != nil {
			t.Errorf("behind %d statements: %v", done, err)
		}
		var n int
		if err := plain.QueryRow("SELECT (SELECT COUNT(*) FROM reprise_outbox_bucket) + (SELECT COUNT(*) FROM reprise_outbox_slot)").Scan(&n); err != nil || n != 257 {
			t.Errorf("behind %d statements: %d buckets and slots, error %v", done, n, err)
		}
	}
}

func TestMigrateNewer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec("INSERT INTO reprise_migration VALUES (2, 'later', UTC_TIMESTAMP(6))")
	d, err := mysql.New(t.Context(), openDB(t, b.dsn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := migrate.Up(t.Context(), d); !errors.Is(err, migrate.ErrNewer) {
		t.Errorf("%v, want ErrNewer", err)
	}
}
