// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/ledger"
)

// ownerVariable makes a test binary the process that owns a key and is killed.
const ownerVariable = "REPRISE_POSTGRES_OWNER"

// owner says where an owner works, and what it is doing when it is killed.
type owner struct {
	DSN string `json:"dsn"`
	// Statement is what runs in the database at that moment; none if empty.
	Statement string `json:"statement"`
}

// Own is the main function of a process that Takeover has started. It returns in
// all others; TestMain calls it first.
func Own[TTx any](h Harness[TTx]) {
	spec, ok := os.LookupEnv(ownerVariable)
	if !ok {
		return
	}
	// It never comes to its COMMIT, so whatever happens is an error.
	fmt.Fprintln(os.Stderr, "the owner survived:", own(h, spec))
	os.Exit(1)
}

func own[TTx any](h Harness[TTx], spec string) error {
	var o owner
	if err := json.Unmarshal([]byte(spec), &o); err != nil {
		return err
	}
	s, stop, err := h.start(context.Background(), o.DSN, Options{}, nil)
	if err != nil {
		return err
	}
	defer stop()
	_, err = s.do("k", func(ctx context.Context, tx TTx) error {
		fmt.Println("the order is written") //nolint:forbidigo // it tells its parent
		if o.Statement == "" {
			select {}
		}
		_, err := h.Number(ctx, tx, o.Statement)
		return err
	})
	return err
}

// Takeover kills the process that owns a key, by SIGKILL in the middle of its
// transaction. The claim dies with the transaction, so the next attempt has nothing
// to wait for: there is no lease.
func Takeover[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for name, statement := range map[string]string{
		"between two statements": "",
		"within a statement":     "SELECT count(pg_sleep(1e6))",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takeover(t, h, statement)
		})
	}
}

func takeover[TTx any](t *testing.T, h Harness[TTx], statement string) {
	dsn := dbtest.PostgresDatabase(t)
	see := observe(t, dsn)
	// What a staged run would have to wait for is longer than any test.
	s := h.open(t, dsn, Options{}, &ledger.Config{Lease: 24 * time.Hour})
	cmd := startOwner(t, owner{DSN: dsn, Statement: statement})
	if statement != "" {
		see.eventually("the owner's statement runs", func() bool {
			return see.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
		})
	}
	_, err := s.ledger.Do(t.Context(), intent("k"), ledger.Options{Wait: time.Millisecond}, s.work("k"))
	if !errors.Is(err, reprise.ErrInProgress) {
		t.Fatalf("beside a living owner: %v, want in progress", err)
	}
	see.effects(0)

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the owner was not killed: %v", err)
	}
	a, err := s.do("k")
	if err != nil || a.Replayed {
		t.Errorf("after the death of the owner: %+v, %v", a, err)
	}
	see.effects(1)
}

// startOwner returns when the owner is in the middle of its transaction.
func startOwner(t *testing.T, o owner) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), ownerVariable+"="+string(spec))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the owner says nothing: %v (%v)", err, cmd.Wait())
	}
	return cmd
}
