// SPDX-License-Identifier: Apache-2.0

package crashpoint_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// TestEveryBoundaryIsHit proves that enumeration by number reaches each side of
// each statement once, and that an error before a statement keeps it from the
// database while an error after it does not.
func TestEveryBoundaryIsHit(t *testing.T) {
	errStop := errors.New("stopped here")
	var stopAt int64
	var seen []crashpoint.Boundary
	d := crashpoint.Wrap(&sqlite.Driver{}, func(b crashpoint.Boundary) error {
		seen = append(seen, b)
		if b.Number == stopAt {
			return errStop
		}
		return nil
	})
	sql.Register("crashpoint-test", d)

	// transact inserts one row, in a transaction, through Exec and a prepared
	// statement.
	transact := func(db *sql.DB) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec("INSERT INTO t VALUES (1)"); err != nil {
			return err
		}
		s, err := tx.Prepare("INSERT INTO t VALUES (?)")
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := s.Exec(2); err != nil {
			return err
		}
		return tx.Commit()
	}
	first := int64(0)
	for k := int64(1); ; k++ {
		file := filepath.Join(t.TempDir(), "t.db")
		db, err := sql.Open("crashpoint-test", file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE t (x)"); err != nil {
			t.Fatal(err)
		}
		first = seen[len(seen)-1].Number
		seen = seen[:0]
		stopAt = first + k
		err = transact(db)
		stopAt = 0
		_ = db.Close()
		rows := count(t, file)
		if err == nil {
			if rows != 2 {
				t.Errorf("the run without a hit left %d rows, want 2", rows)
			}
			if want := int64(4*2 + 1); k != want {
				t.Errorf("the enumeration ended at %d, want %d: BEGIN, 2 INSERT and COMMIT have two sides each", k, want)
			}
			return
		}
		if !errors.Is(err, errStop) {
			t.Fatalf("boundary %d: %v", k, err)
		}
		committed := k == 8 // after COMMIT
		if (rows == 2) != committed || rows == 1 {
			t.Errorf("boundary %d (%+v) left %d rows", k, seen[k-1], rows)
		}
	}
}

// count looks at the file through another connection: a connection whose COMMIT
// failed goes back to the pool with its transaction open, and would count rows
// that nobody else can see.
func count(t *testing.T, file string) (rows int) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM t").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}
