// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// database makes a database that a shop has worked on, with one order in it.
func database(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "shop.db")
	p := start(t, "--db", "sqlite:"+path)
	p.world(nil).order("before")
	p.signal(syscall.SIGTERM)
	if s := p.exit(); s.ExitCode() != 0 {
		t.Fatalf("%v: %s", s, p.stderr)
	}
	return path
}

// beside opens a database beside the shop, as somebody else would.
func beside(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// refuses demands that the shop does not start, ends with 4, announces nothing,
// and says what is wrong and what to do.
func refuses(t *testing.T, cmd *exec.Cmd, says string) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	e, ok := errors.AsType[*exec.ExitError](err)
	if !ok || e.ExitCode() != 4 {
		t.Fatalf("ended with %v: %s", err, &stderr)
	}
	if stdout.Len() > 0 {
		t.Errorf("announced %s", &stdout)
	}
	text := stderr.String()
	if !strings.HasPrefix(text, "error: the database ") || !strings.Contains(text, says) || !strings.Contains(text, "\nhint: ") {
		t.Errorf("said %s; want %q", text, says)
	}
}

func TestRefusesDatabase(t *testing.T) {
	t.Parallel()
	t.Run("that somebody else has locked", func(t *testing.T) {
		t.Parallel()
		path := database(t)
		db := beside(t, path)
		execute(t, db, "PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "CREATE TABLE lock (x)")
		refuses(t, prepare("--db", "sqlite:"+path), "locked")
		execute(t, db, "ROLLBACK")
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		start(t, "--db", "sqlite:"+path)
	})
	t.Run("that a newer program has migrated", func(t *testing.T) {
		t.Parallel()
		for _, statement := range []string{
			"INSERT INTO reprise_migration VALUES (99, 'later', 0)",
			"INSERT INTO shop_migration VALUES (99, 'later', 0)",
		} {
			path := database(t)
			db := beside(t, path)
			execute(t, db, statement)
			before := dump(t, db)
			refuses(t, prepare("--db", "sqlite:"+path), "schema is newer than this program")
			if after := dump(t, db); after != before {
				t.Error("a database that was refused was changed")
			}
		}
	})
	t.Run("that is damaged", func(t *testing.T) {
		t.Parallel()
		path := database(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Every page but the first, which says how to read the others.
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(strings.Repeat("damage ", int(info.Size()-4096)/7)), 4096); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		refuses(t, prepare("--db", "sqlite:"+path), "damaged")
	})
	t.Run("that is a directory", func(t *testing.T) {
		t.Parallel()
		refuses(t, prepare("--db", "sqlite:"+t.TempDir()), "can't be")
	})
	t.Run("that can't be written", func(t *testing.T) {
		t.Parallel()
		path := database(t)
		cmd := prepare("--db", "sqlite:"+path, "--psp", "http://127.0.0.1:1")
		for _, name := range []string{path, filepath.Dir(path)} {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			mode := info.Mode()
			if err := os.Chmod(name, mode.Perm()&^0o222|0o444); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(name, mode) })
		}
		asNobody(t, cmd)
		refuses(t, cmd, "can't be written")
	})
}

// asNobody has cmd run by a user whom file modes stop, if this one is root, whom
// they don't. The program is copied to where that user may read it.
func asNobody(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	from, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 65534
	cmd.Path, cmd.Dir = program, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// dump returns how much is in each table of a database.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	var text strings.Builder
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	_ = rows.Close()
	for _, name := range tables {
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM "` + name + `"`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintln(&text, name, n)
	}
	return text.String()
}

// TestOpenTwice proves that a shop that could not be opened leaves nothing that
// keeps the next one from it.
func TestOpenTwice(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite)
	path := filepath.Join(t.TempDir(), "shop.db")
	c := shop.Config{Listen: strings.TrimPrefix(w.api, "http://"), Admin: "127.0.0.1:0", DB: "sqlite:" + path}
	if s, err := shop.Open(t.Context(), c); err == nil || s != nil {
		t.Fatal("two shops have one address")
	}
	c.Listen = "127.0.0.1:0"
	s, err := shop.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
