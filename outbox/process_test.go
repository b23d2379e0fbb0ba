// SPDX-License-Identifier: Apache-2.0

//go:build unix

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

// The environment of a relay process.
const (
	processDir  = "REPRISE_TEST_RELAY_DIR"  // of its world
	processKill = "REPRISE_TEST_RELAY_KILL" // the boundary at which it kills itself; none if empty
	processStop = "REPRISE_TEST_RELAY_STOP" // if set, it stops itself in its first delivery
)

// process relays the world in dir until nothing is left to do. It kills itself
// with SIGKILL at one boundary: the moment before or after one of its steps.
func process(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := openWorld(ctx, dir)
	if err != nil {
		return err
	}
	p := &doomed{dir: dir, kill: os.Getenv(processKill), passed: make(map[string]int)}
	handler := w.in.Handler(func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
		return p.step("effect", func() error { return w.apply(ctx, tx, m) })
	})
	sink := outbox.SinkFunc(func(ctx context.Context, m reprise.Message) error {
		return p.step("deliver", func() error {
			first := !strings.Contains(p.read("deliveries"), m.ID+"\n")
			p.note("deliveries", m.ID)
			if first && m.Subject == "flaky" {
				return errBoom // so that there is something to hold and to update
			}
			p.pause()
			return handler.Deliver(ctx, m)
		})
	})
	relay, err := outbox.NewRelay(&doomedStore{Relay: w.producer.Relay(), p: p}, sink, &outbox.RelayConfig{
		Lease: 300 * time.Millisecond, Workers: 1, RetryBase: time.Millisecond, RetryCap: 10 * time.Millisecond,
		PollMin: time.Millisecond, PollMax: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		for ctx.Err() == nil {
			p.mu.RLock()
			b, err := w.producer.Relay().Backlog(ctx)
			p.mu.RUnlock()
			had := relay.Stats().Taken // a process that has owned nothing has nothing to give up
			if os.Getenv(processStop) != "" {
				had = relay.Stats().Lost
			}
			if err == nil && b.Waiting+b.Retry+b.Blocked == 0 && had > 0 {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	err = relay.Run(running)
	p.note("lost", strconv.FormatUint(relay.Stats().Lost, 10))
	return errors.Join(err, ctx.Err(), w.close())
}

// doomed counts the boundaries that a process passes, and ends it at one.
type doomed struct {
	dir  string
	kill string

	mu       sync.RWMutex // held for writing while no step may be under way
	passedMu sync.Mutex
	passed   map[string]int
	stopped  bool
}

func (p *doomed) step(name string, body func() error) error {
	p.boundary("before " + name)
	err := body()
	p.boundary("after " + name)
	return err
}

// boundary has a name that says where the process is, and for the how many-th
// time.
func (p *doomed) boundary(place string) {
	p.passedMu.Lock()
	defer p.passedMu.Unlock()
	p.passed[place]++
	name := fmt.Sprintf("%s %d", place, p.passed[place])
	if name == p.kill {
		p.note("killed", name)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	p.note("passed", name)
}

// pause stops this process once, at a moment when it holds no lock of a file.
func (p *doomed) pause() {
	if os.Getenv(processStop) == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	// The stop reaches the other threads when it likes, so this one waits for its end.
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
}

// note adds a line to a file. What it says survives a SIGKILL of the writer.
func (p *doomed) note(file, line string) {
	f, err := os.OpenFile(filepath.Join(p.dir, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
}

func (p *doomed) read(file string) string {
	b, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		panic(err)
	}
	return string(b)
}

// doomedStore makes a step of each call that moves something. Renewals and empty
// looks come when the clock says so, and would make the count unsteady.
type doomedStore struct {
	store.Relay
	p *doomed
}

func (s *doomedStore) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) (held []store.Slot, err error) {
	s.p.mu.RLock()
	defer s.p.mu.RUnlock()
	held, err = s.Relay.Acquire(ctx, owner, lease, limit)
	if len(held) > 0 {
		s.p.boundary("after acquire")
	}
	return held, err
}

func (s *doomedStore) Renew(ctx context.Context, held store.Slot, lease time.Duration) error {
	s.p.mu.RLock()
	defer s.p.mu.RUnlock()
	return s.Relay.Renew(ctx, held, lease)
}

func (s *doomedStore) Release(ctx context.Context, held store.Slot) error {
	return s.p.step("release", func() error { return s.Relay.Release(ctx, held) })
}

func (s *doomedStore) Fetch(ctx context.Context, held store.Slot, limit int) (store.Page, error) {
	page, err := s.Relay.Fetch(ctx, held, limit)
	if len(page.Messages) > 0 {
		s.p.boundary("after fetch")
	}
	return page, err
}

func (s *doomedStore) Advance(ctx context.Context, held store.Slot, page store.Page, holds []store.Hold) error {
	return s.p.step("advance", func() error { return s.Relay.Advance(ctx, held, page, holds) })
}

func (s *doomedStore) Due(ctx context.Context, held store.Slot, limit int) ([]store.Hold, error) {
	due, err := s.Relay.Due(ctx, held, limit)
	if len(due) > 0 {
		s.p.boundary("after due")
	}
	return due, err
}

func (s *doomedStore) Update(ctx context.Context, held store.Slot, holds []store.Hold) error {
	return s.p.step("update", func() error { return s.Relay.Update(ctx, held, holds) })
}

// start starts a relay process on dir.
func start(t *testing.T, dir string, env ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), processDir+"="+dir)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// lines returns the lines of a file in dir.
func lines(t *testing.T, dir, file string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n"))
}

// populate commits the events of a process test and closes the files.
func populate(t *testing.T, dir string) {
	t.Helper()
	w, err := openWorld(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.commit(t.Context(), "a", "flaky", ""), w.commit(t.Context(), "a", "flaky"), w.close()); err != nil {
		t.Fatal(err)
	}
}

// copyWorld copies closed files, which takes less time than making them.
func copyWorld(t *testing.T, from string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range []string{"producer.db", "consumer.db"} {
		b, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestProcessKilled is REL-01 and CON-02: kill -9 at each boundary of a relay and
// its consumer. At least one delivery, exactly one effect, nothing lost, nothing
// left leased.
func TestProcessKilled(t *testing.T) {
	t.Parallel()
	template := t.TempDir()
	populate(t, template)
	unharmed := copyWorld(t, template)
	cmd, out := start(t, unharmed)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	boundaries := lines(t, unharmed, "passed")
	for _, place := range []string{
		"after acquire", "after fetch", "before deliver", "after deliver", "before effect", "after effect", "before advance",
		"after advance", "after due", "before update", "after update", "before release", "after release",
	} {
		if !slices.Contains(boundaries, place+" 1") {
			t.Errorf("the process never came to %q: %v", place, boundaries)
		}
	}
	var unfired atomic.Int64
	t.Run("at", func(t *testing.T) {
		for _, boundary := range boundaries {
			t.Run(boundary, func(t *testing.T) {
				t.Parallel()
				if !killOnce(t, template, boundary) {
					unfired.Add(1)
					if strings.HasSuffix(boundary, " 1") {
						t.Error("the process was not killed")
					}
				}
			})
		}
	})
	// Two retries become due together or apart, so the last few are not certain.
	if unfired.Load() > 6 {
		t.Errorf("%d of %d processes were not killed", unfired.Load(), len(boundaries))
	}
}

// killOnce kills a process on a copy of template at a boundary, lets another one
// finish, and counts. It reports whether the first one came to the boundary.
func killOnce(t *testing.T, template, boundary string) bool {
	dir := copyWorld(t, template)
	cmd, out := start(t, dir, processKill+"="+boundary)
	err := cmd.Wait()
	fired := err != nil
	if fired {
		killed := lines(t, dir, "killed")
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() || status.Signal() != syscall.SIGKILL || !slices.Equal(killed, []string{boundary}) {
			t.Fatalf("%v after %v: %s", err, killed, out)
		}
		cmd, out = start(t, dir)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("the next process failed: %v: %s", err, out)
		}
	}
	w := newWorld(t, dir)
	w.check(t)
	deliveries := lines(t, dir, "deliveries")
	for _, e := range w.made(t) {
		if !slices.Contains(deliveries, e.id) {
			t.Errorf("no delivery of %s", e.id)
		}
	}
	slots, err := w.producer.Relay().Acquire(t.Context(), "test", time.Second, 1)
	if err != nil || len(slots) != 1 {
		t.Errorf("slots after a graceful stop: %v, %v", slots, err)
	}
	return fired
}

// TestProcessStopped is REL-05: a relay is stopped in a delivery for longer than
// its lease, another one takes over, and the first wakes up again.
func TestProcessStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	populate(t, dir)
	cmd, out := start(t, dir, processStop+"=1")
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("status %v, error %v: %s", status, err, out)
	}

	w := newWorld(t, dir)
	relay, err := outbox.NewRelay(w.producer.Relay(), w.in.Handler(w.apply), &outbox.RelayConfig{
		Lease: 10 * time.Second, PollMax: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		b, err := relay.Backlog(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("backlog %+v, %v", b, err)
		}
		if b == (store.Backlog{}) {
			break
		}
	}
	before := len(w.effects(t))

	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.check(t)
	deliveries, lost := lines(t, dir, "deliveries"), lines(t, dir, "lost")
	if before != 5 || len(deliveries) != 1 || !slices.Equal(lost, []string{"1"}) {
		t.Errorf("%d effects by the second relay; the zombie delivered %v and lost %v slots; want 5, one delivery, 1",
			before, deliveries, lost)
	}
}
