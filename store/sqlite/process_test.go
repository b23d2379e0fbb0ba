// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
)

const (
	// childVariable says which part of a re-executed test binary to run, and
	// fileVariable on which database.
	childVariable = "REPRISE_SQLITE_TEST_CHILD"
	fileVariable  = "REPRISE_SQLITE_TEST_FILE"
)

// children are the parts. They speak to their parent by lines on standard
// output, and end with it: when their standard input does.
var children = map[string]func(){
	"place": childPlace,
	"full":  childFull,
	"story": childStory,
}

// child starts this test binary again, for one part.
func child(t *testing.T, part, path string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	return start(t, cmd, part, path, env...)
}

func start(t *testing.T, cmd *exec.Cmd, part, path string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd.Env = append(os.Environ(), childVariable+"="+part, fileVariable+"="+path)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

// childOpen opens the database of a child, which dies with its parent.
func childOpen() *fixture {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	db, err := sql.Open("sqlite", os.Getenv(fileVariable))
	if err != nil {
		childFail(err)
	}
	d, err := New(context.Background(), db, &Options{BusyTimeout: 20 * time.Second, DeliveredRetention: time.Hour})
	if err != nil {
		childFail(err)
	}
	return &fixture{Driver: d}
}

func childFail(err error) {
	fmt.Fprintln(os.Stderr, "child:", err)
	os.Exit(1)
}

// keysVariable holds the first key to place an order under, and the one to stop at.
const keysVariable = "REPRISE_SQLITE_TEST_KEYS"

// childPlace places orders under the keys k0, k1, ... from eight goroutines, as
// fast as it can, and acknowledges each on a line.
func childPlace() {
	f := childOpen()
	var next, last int
	if _, err := fmt.Sscan(os.Getenv(keysVariable), &next, &last); err != nil {
		childFail(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= last {
					return
				}
				key := fmt.Sprint("k", i)
				executed, err := f.placeIn(context.Background(), key)
				if err != nil {
					childFail(err)
				}
				mu.Lock()
				fmt.Println(key, executed)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s := f.Stats()
	fmt.Println("committed", s.Requests, s.Commits)
	if err := f.Close(); err != nil {
		childFail(err)
	}
}

// placeIn is place for those who have no test.
func (f *fixture) placeIn(ctx context.Context, key string) (executed bool, err error) {
	_, executed, err = f.Execute(ctx, claim(key), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		if err := order(ctx, tx, key); err != nil {
			return store.Completion{}, err
		}
		return completion(key), f.Enqueue(ctx, tx, message(key, ""))
	})
	return executed, err
}

// whole asserts that every intent is in all three tables or in none, but for
// runs that are still in progress.
func (f *fixture) whole() {
	f.t.Helper()
	var verdict string
	if err := f.db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		f.t.Fatalf("integrity_check: %q, %v", verdict, err)
	}
	if n := f.count("SELECT count(*) FROM orders o FULL JOIN (SELECT key FROM reprise_ledger WHERE state = 'completed') l ON o.ref = l.key " +
		"FULL JOIN reprise_outbox m ON m.message_id = coalesce(o.ref, l.key) " +
		"WHERE o.ref IS NULL OR l.key IS NULL OR m.message_id IS NULL"); n != 0 {
		f.t.Fatalf("%d intents are there in part", n)
	}
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{BusyTimeout: 20 * time.Second})
	const keys = 500
	cmd, lines := child(t, "place", f.path, fmt.Sprintf("%s=0 %d", keysVariable, keys))
	counts := map[string]int{}
	here, there := 0, 0
	var wg sync.WaitGroup
	var mu sync.Mutex
	if !lines.Scan() { // it is at work, and has almost everything before it
		t.Fatal("the other process placed no order")
	}
	wg.Go(func() {
		for more := true; more; more = lines.Scan() {
			key, executed, _ := strings.Cut(lines.Text(), " ")
			if executed == "true" {
				mu.Lock()
				counts[key]++
				there++
				mu.Unlock()
			}
		}
	})
	for i := range 8 {
		wg.Go(func() {
			for j := keys - 1 - i; j >= 0; j -= 8 { // from the other end, so both find keys of their own
				key := fmt.Sprint("k", j)
				executed, err := f.placeIn(t.Context(), key)
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
				if executed {
					mu.Lock()
					counts[key]++
					here++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for key, n := range counts {
		if n != 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
	}
	if len(counts) != keys || here == 0 || there == 0 {
		t.Errorf("%d of %d keys were executed, %d here and %d there; want all, and some in each", len(counts), keys, here, there)
	}
	if n := f.orders(); n != keys {
		t.Errorf("%d orders, want %d", n, keys)
	}
	f.whole()
}

// TestFourProcesses: four processes place the same orders, one of them is killed on
// its way, and the others finish: each key once, nobody starved, and each process
// still shares its commits among its own callers.
func TestFourProcesses(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	const keys = 300
	executed := map[string]int{}
	answered := map[string]int{} // by key, of those who were not killed
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 4 {
		cmd, lines := child(t, "place", f.path, fmt.Sprintf("%s=0 %d", keysVariable, keys))
		wg.Go(func() {
			requests, commits := 0, 0
			for n := 0; lines.Scan(); n++ {
				if _, err := fmt.Sscanf(lines.Text(), "committed %d %d", &requests, &commits); err == nil {
					continue
				}
				key, first, _ := strings.Cut(lines.Text(), " ")
				mu.Lock()
				if first == "true" {
					executed[key]++
				}
				if i > 0 {
					answered[key]++
				}
				mu.Unlock()
				if i == 0 && n == 20 {
					_ = cmd.Process.Kill() // eight callers of it are at work
				}
			}
			err := cmd.Wait()
			if killed := err != nil; killed != (i == 0) {
				t.Errorf("process %d: %v", i, err)
			}
			if i > 0 && (requests < keys || commits == 0 || commits > requests*3/4) {
				t.Errorf("process %d: %d requests in %d commits; want each key, and commits that are shared", i, requests, commits)
			}
		})
	}
	wg.Wait()
	for i := range keys {
		key := fmt.Sprint("k", i)
		if executed[key] > 1 || answered[key] != 3 || f.orders(key) != 1 {
			t.Errorf("%s: executed %d times, answered %d times to those who live, %d orders", key, executed[key], answered[key], f.orders(key))
		}
	}
	f.whole()
}

// TestShare: a driver that is never idle does not keep the file from another one.
func TestShare(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{BusyTimeout: 20 * time.Second})
	g := open(t, f.path, &Options{BusyTimeout: 20 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				if _, err := f.placeIn(ctx, fmt.Sprint("busy", i, "-", j)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		if err := g.place(fmt.Sprint("k", i)); err != nil {
			t.Error(err)
		}
	}
	stop()
	wg.Wait()
	if n := f.count("SELECT count(*) FROM orders WHERE ref LIKE 'k%'"); n != 20 {
		t.Errorf("%d orders of the second driver, want 20", n)
	}
	f.whole()
}

// TestConcurrentMigration starts several drivers on a file without a schema.
func TestConcurrentMigration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			d, err := New(t.Context(), db, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			if err := migrate.Up(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f := open(t, path, nil)
	if n := f.count("SELECT count(*) FROM reprise_migration"); n != 1 {
		t.Errorf("%d migrations were noted, want 1", n)
	}
}

// TestKilled kills a process that places orders, at any moment, again and again.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	acked := map[string]bool{}
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		// It begins with the last keys of the rounds before. Those that were
		// acknowledged must not run again; those that were not must be free.
		again := max(0, len(acked)-20)
		cmd, lines := child(t, "place", f.path, fmt.Sprintf("%s=%d %d", keysVariable, again, 1<<30))
		stop := 30 + rand.IntN(100)
		fresh := 0
		for n := 0; n < stop && lines.Scan(); n++ {
			key, executed, _ := strings.Cut(lines.Text(), " ")
			if acked[key] && executed == "true" {
				t.Errorf("%s was executed again after a crash", key)
			}
			if executed == "true" {
				fresh++
			}
			acked[key] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what was acknowledged while the kill was on its way
			if key, _, ok := strings.Cut(lines.Text(), " "); ok {
				acked[key] = true
			}
		}
		_ = cmd.Wait()

		g := open(t, f.path, nil)
		g.whole()
		for key := range acked {
			if n := g.orders(key); n != 1 {
				t.Errorf("%s was acknowledged and has %d orders", key, n)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if fresh == 0 {
			t.Error("the process was killed before it had done anything new")
		}
	}
}
