// SPDX-License-Identifier: Apache-2.0

package powerloss_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise/torture/powerloss"
)

// losses is what the images of one run showed.
type losses struct {
	powerloss.Count
	lost, damaged int
}

// commits inserts rows 0, 1, ... in a transaction each, acknowledges them, and
// looks for them in every image. Images are opened by another implementation of
// SQLite, with its own VFS.
func commits(t *testing.T, pragmas string, lazy func(file string) bool) (l losses) {
	t.Helper()
	disk := powerloss.New()
	defer disk.Close()
	disk.Lazy = lazy
	db, err := driver.Open(disk.DSN(filepath.Join(t.TempDir(), "p.db"), pragmas))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	const rows = 6
	for i := -1; i < rows; i++ {
		query := fmt.Sprintf("INSERT INTO p VALUES (%d, hex(randomblob(900)))", i)
		if i < 0 {
			query = "CREATE TABLE p (n INTEGER UNIQUE, filler TEXT)"
		}
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
		disk.Acknowledge(fmt.Sprint(i))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for image := range disk.Images(1, &l.Count) {
		found, sound := content(t, image)
		if !sound {
			l.damaged++
			continue
		}
		for _, label := range image.Acknowledged {
			if label != "-1" && !slices.Contains(found, label) {
				l.lost++
				break
			}
		}
	}
	if l.Images == 0 || l.Points < 2*rows {
		t.Fatalf("only %+v", l.Count)
	}
	t.Logf("%s: %d points, %d images (%d more were the same), %d lost acknowledged rows, %d damaged",
		pragmas, l.Points, l.Images, l.Same, l.lost, l.damaged)
	return l
}

// content returns the rows of an image, and whether the database is sound.
func content(t *testing.T, image powerloss.Image) (rows []string, sound bool) {
	t.Helper()
	dir := t.TempDir()
	if err := image.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "p.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		return nil, false
	}
	list, err := db.Query("SELECT n FROM p")
	if err != nil {
		return nil, strings.Contains(err.Error(), "no such table")
	}
	defer list.Close()
	for list.Next() {
		var n string
		if err := list.Scan(&n); err != nil {
			return nil, false
		}
		rows = append(rows, n)
	}
	return rows, list.Err() == nil
}

// TestKnownModes: the disk finds what is known to be lost, and nothing where
// SQLite promises to lose nothing.
func TestKnownModes(t *testing.T) {
	t.Parallel()
	const pragmas = "_pragma=busy_timeout(1000)&_pragma=journal_mode(%s)&_pragma=synchronous(%s)&_pragma=wal_autocheckpoint(8)"
	for _, c := range []struct {
		journal, synchronous string
		lazy                 func(string) bool
		loses, damages       bool
	}{
		{"wal", "full", nil, false, false},
		// The commit is the end of the journal's name, and only EXTRA syncs that.
		{"delete", "full", nil, true, false},
		{"delete", "extra", nil, false, false},
		{"truncate", "full", nil, false, false},
		{"wal", "normal", nil, true, false},
		{"delete", "off", nil, true, true},
		{"wal", "full", func(file string) bool { return strings.HasSuffix(file, "-wal") }, true, true},
		{"wal", "full", func(file string) bool { return strings.HasSuffix(file, ".db") }, true, true},
	} {
		name := c.journal + " " + c.synchronous
		if c.lazy != nil {
			name += " on a disk that lies"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := commits(t, fmt.Sprintf(pragmas, c.journal, c.synchronous), c.lazy)
			damaged := l.damaged > 0 // and what can't be read can't be looked for
			if damaged != c.damages || !damaged && (l.lost > 0) != c.loses {
				t.Errorf("%d images lost acknowledged rows and %d are damaged; want lost %t, damaged %t", l.lost, l.damaged, c.loses, c.damages)
			}
		})
	}
}

// TestImages: equal seeds make equal images, and each kind does what it says.
func TestImages(t *testing.T) {
	t.Parallel()
	disk := powerloss.New()
	defer disk.Close()
	db, err := driver.Open(disk.DSN(filepath.Join(t.TempDir(), "p.db"), "_pragma=journal_mode(wal)"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE p (n)"); err != nil {
		t.Fatal(err)
	}
	var first []powerloss.Image
	kinds := map[powerloss.Kept]int{}
	for image := range disk.Images(7, nil) {
		first = append(first, image)
		kinds[image.Kept]++
	}
	i := 0
	for image := range disk.Images(7, nil) {
		for name, data := range image.Files {
			if string(first[i].Files[name]) != string(data) {
				t.Fatalf("point %d: %s differs between two runs with one seed", image.Point, name)
			}
		}
		i++
	}
	if i != len(first) || len(kinds) != 4 {
		t.Errorf("%d images, then %d; kinds %v", len(first), i, kinds)
	}
	for _, o := range disk.Operations() {
		if o.File == "" || o.String() == "" {
			t.Errorf("an operation without a file: %+v", o)
		}
	}
}
