// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/reprise-go/reprise/store"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()

	t.Run("SQLITE_FULL is unavailable, nothing half, and over when there is room", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		pages, err := f.writer.conn.pragma("PRAGMA page_count")
		if err != nil {
			t.Fatal(err)
		}
		limit := func(n int64) {
			if _, err := f.writer.conn.pragma(fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
				t.Fatal(err)
			}
		}
		limit(pages.(int64) + 1)
		var failed string
		for i := 0; failed == "" && i < 1000; i++ {
			key := fmt.Sprint("k", i)
			if err := f.place(key); err != nil {
				if !errors.Is(err, store.ErrUnavailable) || code(err) != codeFull {
					t.Fatalf("error %v, want ErrUnavailable around SQLITE_FULL", err)
				}
				failed = key
			}
		}
		if failed == "" {
			t.Fatal("the disk never was full")
		}
		f.kept(failed, 0)
		limit(1 << 30)
		if err := f.place(failed); err != nil {
			t.Errorf("with room again: %v", err)
		}
		f.kept(failed, 1)
		f.whole()
	})

	t.Run("one whose statement meets it does not harm its batch", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := f.place("first"); err != nil { // with everything in the cache and the pages it needs
			t.Fatal(err)
		}
		pages, err := f.writer.conn.pragma("PRAGMA page_count")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.writer.conn.pragma(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
		errs := f.together(
			func() error { return f.place("a") },
			func() error {
				return f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, strings.Repeat("x", 20000)) })
			},
			func() error { return f.place("b") },
		)
		if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], store.ErrUnavailable) {
			t.Errorf("errors %v", errs)
		}
		f.kept("a", 1)
		f.kept("b", 1)
	})

	t.Run("a write that the file system refuses is unavailable, nothing half, and over when it obeys", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		cmd, lines := child(t, "full", f.path)
		for lines.Scan() {
			t.Log(lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("the child: %v", err)
		}
		g := open(t, f.path, nil)
		g.whole()
		g.kept("again", 1)
	})
}

// childFull lets the kernel refuse to make files longer, so that the log can't
// be written: a real failure below SQLite, which can't be had in this process.
func childFull() {
	f := childOpen()
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		childFail(err)
	}
	if _, err := f.placeIn(context.Background(), "before"); err != nil {
		childFail(err)
	}
	info, err := os.Stat(os.Getenv(fileVariable) + "-wal")
	if err != nil {
		childFail(err)
	}
	limit := old
	limit.Cur = uint64(info.Size()) + 5000 // room for one page more
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		childFail(err)
	}
	_, err = f.placeIn(context.Background(), "refused")
	fmt.Println("refused:", err)
	if !errors.Is(err, store.ErrUnavailable) || code(err) != codeIOErr && code(err) != codeFull {
		childFail(fmt.Errorf("error %w, want ErrUnavailable around an I/O error", err))
	}
	if _, err := f.Find(context.Background(), intent("refused")); !errors.Is(err, store.ErrNotFound) {
		childFail(fmt.Errorf("something was kept: %w", err))
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		childFail(err)
	}
	for _, key := range []string{"refused", "again"} {
		executed, err := f.placeIn(context.Background(), key)
		if err != nil || !executed {
			childFail(fmt.Errorf("%s, once it obeys: executed %v, %w", key, executed, err))
		}
	}
	if err := f.Close(); err != nil {
		childFail(err)
	}
}
