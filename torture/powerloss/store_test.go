// SPDX-License-Identifier: Apache-2.0

package powerloss_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/torture/powerloss"
)

// patient waits for locks.
const patient = "_pragma=busy_timeout(20000)"

// live runs the job once on a disk. tamper is called with the driver's own
// connection, among others, behind the driver's back.
func live(t *testing.T, disk *powerloss.Disk, tamper func(*sqlite3.Conn) error) {
	t.Helper()
	var conns []*sqlite3.Conn
	db, err := driver.Open(disk.DSN(filepath.Join(t.TempDir(), "shop.db"), patient), func(c *sqlite3.Conn) error {
		conns = append(conns, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := openShop(t.Context(), db, retained, &provider{charges: map[reprise.Key]string{}}, func(format string, args ...any) {
		disk.Acknowledge(fmt.Sprintf(format, args...))
	})
	if err != nil {
		t.Fatal(err)
	}
	if tamper != nil {
		for _, c := range conns {
			if err := tamper(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.firstLife(t)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// verdict is what one image showed.
type verdict struct {
	damage        string
	lost, partial []string
}

// look opens an image with another implementation of SQLite and its own VFS.
func look(t *testing.T, image powerloss.Image) (v verdict, db *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	if err := image.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&v.damage); err != nil {
		v.damage = err.Error()
	}
	if v.damage == "ok" {
		v.damage = ""
		if v.lost, v.partial, err = missing(db, image.Acknowledged); err != nil {
			v.damage = err.Error()
		}
	}
	return v, db
}

// each calls f for every image on two goroutines.
func each(disk *powerloss.Disk, count *powerloss.Count, f func(powerloss.Image)) {
	images := make(chan powerloss.Image)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for image := range images {
				f(image)
			}
		})
	}
	for image := range disk.Images(1, count) {
		images <- image
	}
	close(images)
	wg.Wait()
}

// TestStore is store/sqlite under loss of power: at every operation on its files,
// from the making of the database to the deletion of its log, whatever was
// acknowledged is there, whole, and a second life finishes the job with one
// effect for each key.
func TestStore(t *testing.T) {
	t.Parallel()
	disk := powerloss.New()
	defer disk.Close()
	live(t, disk, nil)
	phases(t, disk.Operations())

	var count powerloss.Count
	var mu sync.Mutex
	second, acknowledged := 0, 0
	each(disk, &count, func(image powerloss.Image) {
		v, db := look(t, image)
		defer db.Close()
		if v.damage != "" || len(v.lost)+len(v.partial) > 0 {
			t.Errorf("%s: damage %q, lost %q of %q, in part %q", describe(image), v.damage, v.lost, image.Acknowledged, v.partial)
			return
		}
		lived := secondLife(t, image, db)
		mu.Lock()
		defer mu.Unlock()
		acknowledged += len(image.Acknowledged)
		if lived {
			second++
		}
	})
	t.Logf("%d crash points, %d images (%d more were the same), %d acknowledgements looked for, %d second lives; 0 lost",
		count.Points, count.Images, count.Same, acknowledged, second)
	if count.Points == 0 || count.Images == 0 || acknowledged == 0 || second == 0 {
		t.Error("nothing was looked at")
	}
}

func describe(i powerloss.Image) string {
	next := "after everything"
	if i.Next != nil {
		next = "before " + i.Next.String()
	}
	return fmt.Sprintf("point %d (%s), %s", i.Point, next, i.Kept)
}

// phases asserts that the record holds what is dangerous: the making of the
// database, a log that begins again, writing back, and the end.
func phases(t *testing.T, log []powerloss.Operation) {
	t.Helper()
	count := map[string]int{}
	for _, o := range log {
		kind := string(o.Kind) + " " + strings.TrimPrefix(o.File, "shop.db")
		if o.Kind == powerloss.Write && o.Offset == 0 {
			kind = "first " + kind
		}
		count[kind]++
	}
	for kind, n := range map[string]int{
		"create ": 1, "create -wal": 1, "delete -wal": 1, "first write -wal": 3, "sync -wal": 10,
		"write ": 20, "sync ": 3, "create -journal": 1, "truncate -wal": 1,
	} {
		if count[kind] < n {
			t.Errorf("%q is %d times in the record, want at least %d: %v", kind, count[kind], n, count)
		}
	}
}

// secondLife goes on with the image as the service would after a restart, and
// reports whether it did. It is spared most images: each costs as many commits as
// the first life.
func secondLife(t *testing.T, image powerloss.Image, db *sql.DB) bool {
	t.Helper()
	if image.Point%23 != 0 {
		return false
	}
	p := &provider{charges: map[reprise.Key]string{}}
	for _, label := range image.Acknowledged { // the provider has its own power supply
		if request, ok := strings.CutPrefix(label, "sent payment "); ok {
			p.charges[intent("pay", "payment").Derive("charge")] = request
		}
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Errorf("second life after %s: %v", describe(image), err)
		}
	}
	ctx := t.Context()
	s, err := openShop(ctx, db, retained, p, func(string, ...any) {})
	if err != nil {
		fail(err)
		return false
	}
	defer func() { fail(s.close()) }()
	// The leases of the first life have run out by the time of a restart.
	for _, query := range []string{
		"UPDATE reprise_ledger SET lease_until = 0 WHERE state = 'in_progress'", "UPDATE reprise_outbox_slot SET lease_until = 0",
	} {
		_, err := db.ExecContext(ctx, query)
		fail(err)
	}
	told := map[string]bool{}
	for _, label := range image.Acknowledged {
		told[label] = true
	}
	for _, ref := range orders {
		replayed, err := s.order(ctx, ref)
		fail(err)
		if told["order "+ref] && !replayed {
			t.Errorf("second life after %s: %s was acknowledged, and executed again", describe(image), ref)
		}
	}
	_, err = s.payment(ctx, "payment")
	fail(err)
	fail(s.deliver(ctx, func(string) {}))
	everything := []string{"paid payment"}
	for _, ref := range orders {
		everything = append(everything, "order "+ref)
	}
	lost, partial, err := missing(db, everything)
	fail(err)
	if len(lost)+len(partial) > 0 || len(p.charges) != 1 {
		t.Errorf("second life after %s: not done %q, in part %q, charges %v", describe(image), lost, partial, p.charges)
	}
	return true
}

// automatic tells a connection of the pool from the driver's own, on which no COMMIT
// writes the log back.
func automatic(c *sqlite3.Conn) bool {
	s, _, err := c.Prepare("PRAGMA wal_autocheckpoint")
	if err != nil {
		return false
	}
	defer s.Close()
	return s.Step() && s.ColumnInt(0) > 0
}

// TestStoreWithoutSync: the same job and the same eyes do find what is lost when
// the commit is not synced, behind the driver's back or by a disk that lies.
func TestStoreWithoutSync(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lazy   func(string) bool
		tamper func(*sqlite3.Conn) error
	}{
		"synchronous = NORMAL": {tamper: func(c *sqlite3.Conn) error { return c.Exec("PRAGMA synchronous = NORMAL") }},
		"pool with synchronous = OFF": {tamper: func(c *sqlite3.Conn) error {
			if automatic(c) {
				return c.Exec("PRAGMA synchronous = OFF")
			}
			return nil // the driver's own
		}},
		"a disk that doesn't sync": {lazy: func(file string) bool { return strings.HasSuffix(file, "-wal") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := powerloss.New()
			defer disk.Close()
			disk.Lazy = c.lazy
			live(t, disk, c.tamper)
			var count powerloss.Count
			var mu sync.Mutex
			lost := 0
			each(disk, &count, func(image powerloss.Image) {
				if image.Kept == powerloss.All || image.Point%5 != 0 {
					return
				}
				v, db := look(t, image)
				defer db.Close()
				mu.Lock()
				defer mu.Unlock()
				if v.damage != "" || len(v.lost) > 0 {
					lost++
				}
			})
			t.Logf("%d images, %d of them lost something acknowledged or are damaged", count.Images, lost)
			if lost == 0 {
				t.Error("nothing was found, so the harness would not find anything anywhere")
			}
		})
	}
}
