// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
)

func TestNew(t *testing.T) {
	t.Parallel()

	// try opens dsn with a short patience and returns New's error.
	try := func(t *testing.T, dsn string, o *Options) error {
		t.Helper()
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if o == nil {
			o = &Options{BusyTimeout: 20 * time.Millisecond}
		}
		d, err := New(t.Context(), db, o)
		if err == nil {
			_ = d.Close()
		}
		return err
	}
	// file makes a database with one table, prepared by statements.
	file := func(t *testing.T, statements ...string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "test.db")
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, s := range append(statements, "CREATE TABLE t (a)", "INSERT INTO t VALUES (randomblob(20000))") {
			if _, err := db.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}

	for name, c := range map[string]struct {
		dsn  func(t *testing.T) string
		says string
	}{
		"refuses memory":                  {func(*testing.T) string { return ":memory:" }, "memory alone never holds a key"},
		"refuses shared memory":           {func(*testing.T) string { return "file:x?mode=memory&cache=shared" }, "memory alone never holds a key"},
		"refuses a temporary file":        {func(*testing.T) string { return "" }, "memory alone never holds a key"},
		"refuses a missing directory":     {func(t *testing.T) string { return filepath.Join(t.TempDir(), "no", "x.db") }, "check that its directory exists"},
		"refuses mode=ro":                 {func(t *testing.T) string { return "file:" + file(t) + "?mode=ro" }, "can't be written"},
		"refuses mode=ro in WAL":          {func(t *testing.T) string { return "file:" + file(t, "PRAGMA journal_mode = WAL") + "?mode=ro" }, "can't be written"},
		"refuses UTF-16":                  {func(t *testing.T) string { return file(t, "PRAGMA encoding = 'UTF-16'") }, "UTF-8"},
		"refuses what is not a database":  {func(t *testing.T) string { return scribble(t, file(t), 0, strings.Repeat("nonsense", 50)) }, "not a SQLite database"},
		"refuses a damaged schema":        {func(t *testing.T) string { return scribble(t, file(t), 100, strings.Repeat("\xff", 200)) }, "damaged"},
		"refuses a damaged page":          {func(t *testing.T) string { return scribble(t, file(t), 4096, strings.Repeat("\xff", 64)) }, "damaged"},
		"refuses a truncated file":        {func(t *testing.T) string { return cut(t, file(t), 4096+100) }, "damaged"},
		"refuses a pool without syncs":    {func(t *testing.T) string { return "file:" + file(t) + "?_pragma=synchronous(OFF)" }, "may lose what the driver has committed"},
		"refuses a pool that ends WAL":    {func(t *testing.T) string { return "file:" + file(t) + "?_pragma=journal_mode(DELETE)" }, "locked"},
		"refuses a VFS that can't do WAL": {func(*testing.T) string { return "file:/x?vfs=memdb" }, "memory alone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := try(t, c.dsn(t), nil)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}

	for name, begin := range map[string]string{
		"refuses a file that another process writes":        "BEGIN IMMEDIATE",
		"refuses a file that another process has to itself": "BEGIN EXCLUSIVE",
	} {
		for _, mode := range []string{"WAL", "DELETE"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				path := file(t, "PRAGMA journal_mode = "+mode)
				other, err := sql.Open("sqlite", path)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				other.SetMaxOpenConns(1)
				if _, err := other.Exec(begin); err != nil {
					t.Fatal(err)
				}
				if err := try(t, path, nil); err == nil || !strings.Contains(err.Error(), "locked by another process") {
					t.Errorf("error %v", err)
				}
				if _, err := other.Exec("COMMIT"); err != nil {
					t.Fatal(err)
				}
				if err := try(t, path, nil); err != nil {
					t.Errorf("once it has ended: %v", err)
				}
			})
		}
	}

	t.Run("waits for another process that writes for a moment", func(t *testing.T) {
		t.Parallel()
		path := file(t, "PRAGMA journal_mode = WAL")
		other, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		tx, err := other.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("INSERT INTO t VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Millisecond, func() { _ = tx.Commit() })
		if err := try(t, path, &Options{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("makes its connection durable, whatever the name of the database says", func(t *testing.T) {
		t.Parallel()
		path := "file:" + filepath.Join(t.TempDir(), "x.db") +
			"?_pragma=synchronous(NORMAL)&_pragma=query_only(1)&_pragma=wal_autocheckpoint(1)"
		f := open(t, path, nil)
		for query, want := range map[string]any{
			"PRAGMA synchronous": int64(2), "PRAGMA journal_mode": "wal", "PRAGMA wal_autocheckpoint": int64(0),
		} {
			if got, err := f.writer.conn.pragma(query); err != nil || got != want {
				t.Errorf("%s is %v (%v), want %v", query, got, err, want)
			}
		}
	})

	for query, says := range map[string]string{
		"PRAGMA synchronous = FULL": "acknowledged commits would be lost",
		"PRAGMA journal_mode = WAL": "journal mode",
	} {
		t.Run("refuses a connection on which it has no effect: "+query, func(t *testing.T) {
			t.Parallel()
			h := &hook{}
			h.ignore = query
			db := sql.OpenDB(hooked{dsn: "file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=synchronous(NORMAL)", hook: h})
			defer db.Close()
			if _, err := New(t.Context(), db, nil); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("error %v, want one that says %q", err, says)
			}
		})
	}

	t.Run("refuses options that mean nothing", func(t *testing.T) {
		t.Parallel()
		for _, o := range []Options{{BusyTimeout: -1}, {MaxBatch: -1}, {DeliveredRetention: -1}, {LogSize: -1}} {
			if err := try(t, file(t), &o); err == nil {
				t.Errorf("%+v was taken", o)
			}
		}
		if _, err := New(t.Context(), nil, nil); err == nil {
			t.Error("no *sql.DB was taken")
		}
	})

	t.Run("refuses a pool of one, whose only connection it would keep", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", file(t))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		if _, err := New(t.Context(), db, nil); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Errorf("error %v", err)
		}
	})

	t.Run("gives its connection back to nobody", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", file(t))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		d, err := New(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := db.Stats().InUse; n != 1 {
			t.Errorf("%d connections in use, want 1", n)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		// The one that New looked at is the pool's, and its settings are.
		if s := db.Stats(); s.OpenConnections != 1 || s.InUse != 0 {
			t.Errorf("%d connections are still open, %d in use", s.OpenConnections, s.InUse)
		}
		var auto int
		if err := db.QueryRow("PRAGMA wal_autocheckpoint").Scan(&auto); err != nil || auto == 0 {
			t.Errorf("the pool's connection writes the log back after %d pages, %v", auto, err)
		}
	})
}

// scribble damages a file.
func scribble(t *testing.T, path string, at int64, with string) string {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(with), at); err != nil {
		t.Fatal(err)
	}
	return path
}

func cut(t *testing.T, path string, size int64) string {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSchema(t *testing.T) {
	t.Parallel()

	fresh := func(t *testing.T) *Driver {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		d, err := New(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}

	t.Run("that is missing fails closed, and says what to do", func(t *testing.T) {
		t.Parallel()
		d := fresh(t)
		_, _, err := d.Execute(t.Context(), claim("a"), func(context.Context, *sql.Tx) (store.Completion, error) {
			t.Error("work was run")
			return store.Completion{}, nil
		})
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "migrate up") {
			t.Errorf("error %v", err)
		}
		if err := migrate.Verify(t.Context(), d); !errors.Is(err, migrate.ErrBehind) || !strings.Contains(err.Error(), "migrate up") {
			t.Errorf("Verify: %v", err)
		}
	})

	t.Run("can be applied by hand", func(t *testing.T) {
		t.Parallel()
		d := fresh(t)
		script, err := migrate.SQL(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.db.Exec(script); err != nil {
			t.Fatal(err)
		}
		if err := migrate.Verify(t.Context(), d); err != nil {
			t.Error(err)
		}
	})

	t.Run("that is newer is refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if _, err := f.db.Exec("INSERT INTO reprise_migration VALUES (99, 'later', 0)"); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"Up": migrate.Up(t.Context(), f.Driver), "Verify": migrate.Verify(t.Context(), f.Driver)} {
			if !errors.Is(err, migrate.ErrNewer) {
				t.Errorf("%s: error %v, want ErrNewer", name, err)
			}
		}
	})

	t.Run("is there or not there when a migration fails half-way", func(t *testing.T) {
		t.Parallel()
		d := fresh(t)
		err := d.ApplyMigration(t.Context(), 1, "CREATE TABLE half (a); CREATE TABLE half (a);")
		if err == nil {
			t.Fatal("no error")
		}
		var n int
		if err := d.db.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d tables were left, %v", n, err)
		}
		if err := migrate.Up(t.Context(), d); err != nil {
			t.Error(err)
		}
	})

	t.Run("must note itself", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := f.ApplyMigration(t.Context(), 2, "CREATE TABLE second (a)"); err == nil {
			t.Error("a migration that leaves no note was taken")
		}
		if n := f.count("SELECT count(*) FROM sqlite_master WHERE name = 'second'"); n != 0 {
			t.Error("it was kept")
		}
	})

	t.Run("is what the files say", func(t *testing.T) {
		t.Parallel()
		if err := fstest.TestFS(fresh(t).Migrations(), "001_start.up.sql"); err != nil {
			t.Error(err)
		}
	})
}
