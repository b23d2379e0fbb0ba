// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
)

// childStory goes through everything that has a failpoint: a keyed order, a
// staged payment of two phases, and the delivery of both events. What is done is
// not done again, so it can be told until it comes to its end.
func childStory() {
	f := childOpen()
	ctx := context.Background()
	if _, err := f.placeIn(ctx, "order"); err != nil {
		childFail(err)
	}
	if err := f.pay(ctx); err != nil {
		childFail(err)
	}
	if err := f.deliver(ctx); err != nil {
		childFail(err)
	}
	if err := f.Close(); err != nil {
		childFail(err)
	}
	fmt.Println("the end")
}

// pay is a staged run whose lease lapses at once, so that the next telling can
// take it over.
func (f *fixture) pay(ctx context.Context) error {
	e, owned, err := f.Begin(ctx, claim("pay"), []byte("input"), time.Nanosecond)
	if err != nil || !owned {
		return err
	}
	o := store.Ownership{ID: e.ID, Epoch: e.Epoch}
	err = f.Phase(ctx, o, time.Nanosecond, func(context.Context, *sql.Tx) (store.PhaseWrites, error) {
		return store.PhaseWrites{Step: &store.Step{Name: "charge", State: store.StepPlanned, Request: []byte("once")}}, nil
	})
	if err != nil {
		return err
	}
	return f.Phase(ctx, o, time.Nanosecond, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
		done := completion("paid")
		return store.PhaseWrites{Complete: &done}, errors.Join(order(ctx, tx, "pay"), f.Enqueue(ctx, tx, message("pay", "")))
	})
}

func (f *fixture) deliver(ctx context.Context) error {
	r := f.Relay()
	slots, err := r.Acquire(ctx, "child", time.Nanosecond, 1)
	if err != nil || len(slots) != 1 {
		return fmt.Errorf("%d slots: %w", len(slots), err)
	}
	p, err := r.Fetch(ctx, slots[0], 10)
	if err != nil {
		return err
	}
	return r.Advance(ctx, slots[0], p, nil)
}

// TestFailpoints kills the story at every named place, at every time it comes
// there, until a telling ends without being killed.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "sqlite.test")
	if out, err := exec.Command("go", "test", "-c", "-tags", "failpoint", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	names := failpoints(t)
	if len(names) < 6 {
		t.Fatalf("the package has only the failpoints %q", names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 1
			for ; killedAt(t, binary, name, n); n++ {
			}
			if n == 1 {
				t.Error("the story never comes to this failpoint, so nothing was shown")
			}
		})
	}
}

// killedAt tells the story with one failpoint armed, and then to its end.
func killedAt(t *testing.T, binary, name string, n int) bool {
	f := setup(t, nil)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd, lines := start(t, exec.Command(binary), "story", f.path, fmt.Sprintf("REPRISE_FAILPOINT=%s:%d", name, n))
	ended := lines.Scan() && lines.Text() == "the end"
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ended != (err == nil) || !ended && (!ok || exit.ExitCode() != -1) {
		t.Fatalf("hit %d: the child was not killed, and did not come to its end: %v", n, err)
	}
	f.whole()

	cmd, lines = start(t, exec.Command(binary), "story", f.path)
	if !lines.Scan() || lines.Text() != "the end" {
		t.Fatalf("hit %d: told again, it did not come to its end: %v", n, cmd.Wait())
	}
	f.whole()
	for _, key := range []string{"order", "pay"} {
		if n := f.orders(key); n != 1 {
			t.Errorf("hit %d: %d orders of %q, want 1", n, n, key)
		}
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM reprise_ledger WHERE state = 'completed'": 2,
		"SELECT count(*) FROM reprise_step":                             1,
		"SELECT max(position) FROM reprise_outbox_slot":                 2,
		"SELECT count(*) FROM reprise_outbox_hold":                      0,
	} {
		if got := f.count(query); got != want {
			t.Errorf("hit %d: %s is %d, want %d", n, query, got, want)
		}
	}
	return !ended
}

// failpoints reads the names out of the source, so that a new one is covered.
func failpoints(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	hit := regexp.MustCompile(`failpoint\.Hit\("([^"]+)"\)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range hit.FindAllStringSubmatch(string(source), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
