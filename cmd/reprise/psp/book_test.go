// SPDX-License-Identifier: Apache-2.0

package psp

import (
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestOpenBookRefuses(t *testing.T) {
	t.Parallel()
	for statement, says := range map[string]string{
		"PRAGMA user_version = 99":       "version 99",
		"CREATE TABLE somebody_elses(x)": "something else",
	} {
		path := filepath.Join(t.TempDir(), "psp.db")
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := openBook(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("after %q: %v", statement, err)
		}
		if b != nil {
			t.Errorf("after %q: the book was opened", statement)
		}
	}
}

func TestOpenBookAtOnce(t *testing.T) {
	t.Parallel()
	for range 40 {
		path := filepath.Join(t.TempDir(), "psp.db")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				b, err := openBook(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
