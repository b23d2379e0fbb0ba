// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
)

// root is the directory of the library.
const root = "../../.."

// additions are the migrations that the next build has and this one has not: they
// add, as every migration does. The directories are those that the migrations of
// the library and of the shop are compiled in from.
var additions = map[string]string{
	"store/sqlite/migration": `
		ALTER TABLE reprise_ledger ADD COLUMN region TEXT NOT NULL DEFAULT 'here';
		INSERT INTO reprise_migration VALUES (2, 'region', 0);`,
	"store/internal/pg/migration": `
		ALTER TABLE reprise_ledger ADD COLUMN region text NOT NULL DEFAULT 'here';
		INSERT INTO reprise_migration (version, name) VALUES (2, 'region');`,
	"store/mysql/migration": `
		ALTER TABLE reprise_ledger ADD COLUMN region VARBINARY(16) NOT NULL DEFAULT 'here';
		INSERT INTO reprise_migration VALUES (2, 'region', UTC_TIMESTAMP(6));`,
	"cmd/reprise/shop/migration/sqlite": `
		ALTER TABLE orders ADD COLUMN gift TEXT NOT NULL DEFAULT 'no';
		INSERT INTO shop_migration VALUES (2, 'gift', 0);`,
	"cmd/reprise/shop/migration/postgres": `
		ALTER TABLE orders ADD COLUMN gift TEXT NOT NULL DEFAULT 'no';
		INSERT INTO shop_migration VALUES (2, 'gift', 0);`,
	"cmd/reprise/shop/migration/mysql": `
		ALTER TABLE orders ADD COLUMN gift VARBINARY(3) NOT NULL DEFAULT 'no';
		INSERT INTO shop_migration VALUES (2, 'gift', 0);`,
}

// buildNext builds the program as it will be one release later, with additions laid
// over its source.
func buildNext(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for where, text := range additions {
		where = filepath.Join(root, where)
		if found, err := filepath.Glob(filepath.Join(where, "*.up.sql")); err != nil || len(found) != 1 {
			t.Fatalf("%s holds %v (%v); the addition must be the migration after these", where, found, err)
		}
		target, err := filepath.Abs(filepath.Join(where, "002_next.up.sql"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, strings.ReplaceAll(where, string(filepath.Separator), "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[target] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "reprise")
	cmd := exec.Command("go", "build", "-overlay", file, "-o", program, "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// TestRollingDeploy replaces a shop by the next release on the same database while
// both take requests. This test binary is the old program, the new one is built.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	next := buildNext(t)
	for _, on := range []kind{onSQLite, onPostgres, onMariaDB} {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			roll(t, on, next)
		})
	}
}

func roll(t *testing.T, on kind, next string) {
	pr := openProvider(t)
	args := []string{"--db", on.fresh(t), "--psp", pr.url, "--lease", "500ms", "--psp-timeout", "20s"}
	olds := start(t, args...)
	old := olds.world(pr)

	// The old program runs, and remembers things that the new one has to know.
	before, beforePay := newKey(), newKey()
	create := func(w *world, key, ref string) reply {
		return w.do(call{method: "POST", path: "/orders", key: key, body: orderBody(ref)})
	}
	order := create(old, before, "before")
	old.want(order, 201, "")
	payment := old.pay(order.header.Get("Location"), beforePay, "before")
	old.want(payment, 201, "")

	// The database is migrated first. The old program goes on, and does not start again.
	migrate := exec.Command(next, "migrate", "up", "--db", args[1], "--json")
	if out, err := migrate.Output(); err != nil || strings.Count(string(out), `"version":2`) != 2 || strings.Contains(string(out), `"applied":false`) {
		t.Fatalf("%v: %v: %s", migrate, err, out)
	}
	during := newKey()
	made := create(old, during, "during")
	old.want(made, 201, "")
	refuses(t, prepare(args...), "schema is newer than this program")

	// The new one starts beside it.
	cmd := prepare(args...)
	cmd.Path = next
	news := launch(t, cmd)
	if news.admin == "" {
		t.Fatalf("the new shop did not start: %s", news.stderr)
	}
	both := []*world{old, news.world(pr)}

	t.Run("what one has done the other repeats", func(t *testing.T) {
		old, next := both[0].in(t), both[1].in(t)
		after, afterPay := newKey(), newKey()
		newer := create(next, after, "after")
		next.want(newer, 201, "")
		newerPayment := next.pay(newer.header.Get("Location"), afterPay, "after")
		next.want(newerPayment, 201, "")
		for _, again := range []struct{ first, repeat reply }{
			{order, create(next, before, "before")},
			{payment, next.pay(order.header.Get("Location"), beforePay, "before")},
			{made, create(next, during, "during")},
			{newer, create(old, after, "after")},
			{newerPayment, old.pay(newer.header.Get("Location"), afterPay, "after")},
		} {
			if again.repeat.body != again.first.body || again.repeat.header.Get("ETag") != again.first.header.Get("ETag") || !again.repeat.replayed() {
				t.Errorf("%v became %v", again.first, again.repeat)
			}
		}
		next.want(create(next, before, "another"), 422, "key-reused")
		old.want(create(old, after, "another"), 422, "key-reused")
		next.settle("before", paid)
		old.settle("after", paid)
	})
	t.Run("one order and one payment for keys sent to both at once", func(t *testing.T) {
		for round := range 5 {
			ref, key, pay := fmt.Sprint("race", round), newKey(), newKey()
			ids := together(t, 8, func(i int) reply { return create(both[i%2].in(t), key, ref) })
			path := "/orders/" + ids
			together(t, 8, func(i int) reply { return both[i%2].in(t).insist(path, pay, ref) })
			both[round%2].in(t).settle(ref, paid)
		}
	})
	t.Run("the new one ends what the old one was killed at", func(t *testing.T) {
		w := both[0].in(t)
		path, key := w.order("orphan"), newKey()
		pr.fault(t, 1, psp.Hang)
		go w.pay(path, key, "orphan")
		if !eventually(func() bool { return pr.fired(t, psp.Hang) == 1 }) {
			t.Fatal("the fault did not fire")
		}
		olds.kill()
		both[1].in(t).settle("orphan", paid)
	})
	refuses(t, prepare(args...), "schema is newer than this program")
}

// together sends n requests under one key at once, has them all answered 201 with
// one resource, and returns its id.
func together(t *testing.T, n int, request func(i int) reply) (id string) {
	t.Helper()
	replies := make([]reply, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			eventually(func() bool {
				replies[i] = request(i)
				return replies[i].status != 503 && replies[i].text("code") != "in-progress"
			})
		})
	}
	wg.Wait()
	id = replies[0].text("id")
	for _, r := range replies {
		if r.status != 201 || r.text("id") != id || id == "" {
			t.Fatalf("answered %v and %v", replies[0], r)
		}
	}
	return id
}
