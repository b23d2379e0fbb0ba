// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/sqlite"
)

// victimVariable makes this test binary the process that is to die: it names
// the file, the mode, and the boundary, from 1, at which it kills itself.
const victimVariable = "REPRISE_LEDGER_VICTIM"

type victimSpec struct {
	File string `json:"file"`
	Mode string `json:"mode"`
	At   int    `json:"at"`
}

// shortLease is what a dead process's run waits for before it is taken over.
const shortLease = 150 * time.Millisecond

// killer is a driver that dies before or after one of the calls that it passes
// on, by a SIGKILL that the process sends itself.
type killer struct {
	store.Driver[*sql.Tx]
	left int
}

func (k *killer) boundary() {
	if k.left--; k.left != 0 {
		return
	}
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // Not one instruction more.
}

func (k *killer) Execute(ctx context.Context, c store.Claim, work func(context.Context, *sql.Tx) (store.Completion, error)) (store.Entry, bool, error) {
	k.boundary()
	defer k.boundary()
	return k.Driver.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		k.boundary()
		defer k.boundary()
		return work(ctx, tx)
	})
}

func (k *killer) Begin(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
	k.boundary()
	defer k.boundary()
	return k.Driver.Begin(ctx, c, input, lease)
}

func (k *killer) Phase(ctx context.Context, o store.Ownership, lease time.Duration, work func(context.Context, *sql.Tx) (store.PhaseWrites, error)) error {
	k.boundary()
	defer k.boundary()
	return k.Driver.Phase(ctx, o, lease, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
		k.boundary()
		defer k.boundary()
		return work(ctx, tx)
	})
}

// ledgerFile is a provider that survives its clients: a file with a line for
// each request. It recognises keys, so an effect is a distinct key.
type ledgerFile string

func (f ledgerFile) charge(boundary func()) func(context.Context, reprise.Key, []byte) ([]byte, error) {
	return func(_ context.Context, key reprise.Key, request []byte) ([]byte, error) {
		boundary()
		defer boundary()
		file, err := os.OpenFile(string(f), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		_, err = fmt.Fprintf(file, "%s %s\n", key, request)
		return []byte("charge of " + string(key)), err
	}
}

// declare declares the operations of the victim and of those who come after it.
func (s *shop) declare(boundary func()) *ledger.Staged[*sql.Tx] {
	st, err := ledger.NewStaged(s.ledger, "pay", func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
		err := run.Tx(ctx, "reserve", func(ctx context.Context, tx *sql.Tx) error {
			_, err := s.order(ctx, tx, "reserved")
			return err
		})
		if err != nil {
			return err
		}
		request := fmt.Appendf(nil, "%s in drive %d", run.Input(), run.Drive())
		response, err := run.Call(ctx, "charge", request, ledgerFile(s.file+".psp").charge(boundary))
		if err != nil {
			return err
		}
		_, err = run.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			r, err := s.ordering("paid")(ctx, tx)
			r.Body = response
			return r, err
		})
		return err
	})
	if err != nil {
		panic(err)
	}
	return st
}

// victim is the main function of the process that dies.
func victim(spec string) int {
	var v victimSpec
	err := json.Unmarshal([]byte(spec), &v)
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", v.File)
	if err != nil {
		panic(err)
	}
	d, err := sqlite.New(context.Background(), db, nil)
	if err != nil {
		panic(err)
	}
	k := &killer{Driver: d, left: v.At}
	l, err := ledger.New[*sql.Tx](k, &ledger.Config{Lease: shortLease})
	if err != nil {
		panic(err)
	}
	s := &shop{file: v.File, db: db, driver: d, ledger: l}
	var a ledger.Answer
	if v.Mode == "staged" {
		a, err = s.declare(k.boundary).Do(context.Background(), payment("k", 1), ledger.Options{}, []byte("10 EUR"))
	} else {
		a, err = l.Do(context.Background(), intentOf("k", 1), ledger.Options{}, s.ordering("tea"))
	}
	if err != nil {
		panic(err)
	}
	k.boundary() // The answer is known, and nobody has been told.
	fmt.Printf("%s", a.Result.Body)
	return 0
}

// TestKill kills a process with SIGKILL at every boundary of both modes, until
// one comes through, and repeats the intent in another process each time.
func TestKill(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		boundaries, orders int
		// held says that the key of a dead process has to wait for its lease.
		held bool
	}{
		"atomic": {boundaries: 5, orders: 1},
		"staged": {boundaries: 21, orders: 2, held: true},
	} {
		for _, recovery := range []bool{false, true} {
			if recovery && mode == "atomic" {
				continue // There is nothing to recover.
			}
			t.Run(fmt.Sprintf("%s, recovery=%v", mode, recovery), func(t *testing.T) {
				t.Parallel()
				killed := 0
				for at := 1; ; at++ {
					s := openShop(t, &ledger.Config{Lease: shortLease})
					survived, body := s.kill(mode, at)
					s.goOn(mode, recovery, body, c.held)
					s.effects(c.orders)
					if survived {
						break
					}
					killed++
				}
				if killed != c.boundaries {
					t.Errorf("killed at %d boundaries, want %d", killed, c.boundaries)
				}
			})
		}
	}
}

// kill runs a victim and reports whether it survived, and then what it answered.
func (s *shop) kill(mode string, at int) (survived bool, body []byte) {
	s.t.Helper()
	spec, err := json.Marshal(victimSpec{File: s.file, Mode: mode, At: at})
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+string(spec))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !exit.Exited() {
		return false, nil
	}
	if err != nil {
		s.t.Fatalf("boundary %d: %v\n%s", at, err, stderr.Bytes())
	}
	return true, stdout.Bytes()
}

// goOn repeats the victim's intent as its client would, and compares the answer
// with the victim's, if it gave one.
func (s *shop) goOn(mode string, recovery bool, body []byte, held bool) {
	s.t.Helper()
	limit := 5 * time.Second
	if !held {
		limit = time.Second
	}
	st := s.declare(func() {})
	for deadline := time.Now().Add(limit); recovery; {
		report, err := s.ledger.Recover(s.t.Context())
		if err != nil || report.Found != report.Completed || time.Now().After(deadline) {
			s.t.Fatalf("recovery did %+v, %v", report, err)
		}
		if s.count("SELECT count(*) FROM reprise_ledger WHERE state = 'in_progress'") == 0 {
			break
		}
	}
	var a ledger.Answer
	var err error
	start := time.Now()
	if mode == "staged" {
		a, err = st.Do(s.t.Context(), payment("k", 1), ledger.Options{Wait: limit}, []byte("10 EUR"))
	} else {
		a, err = s.ledger.Do(s.t.Context(), intentOf("k", 1), ledger.Options{Wait: limit}, s.ordering("tea"))
	}
	if err != nil || a.Result.Status != 201 || body != nil && (!a.Replayed || !bytes.Equal(a.Result.Body, body)) {
		s.t.Errorf("got %+v, %v after %v; the first answer was %q", a, err, time.Since(start), body)
	}
	if mode == "staged" {
		s.charged()
	}
	if n := s.count("SELECT count(*) FROM reprise_ledger WHERE state <> 'completed'"); n != 0 {
		s.t.Errorf("%d intents are stuck", n)
	}
}

// charged fails the test unless the provider had one effect, under the derived
// key, by the same bytes each time.
func (s *shop) charged() {
	s.t.Helper()
	log, err := os.ReadFile(filepath.Clean(s.file + ".psp"))
	if err != nil {
		s.t.Fatal(err)
	}
	distinct := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		distinct[line] = true
		if key := string(payment("k", 1).Derive("charge")); !strings.HasPrefix(line, key+" ") {
			s.t.Errorf("K6: a charge went out as %q, want the key %s", line, key)
		}
	}
	if len(distinct) != 1 {
		s.t.Errorf("S4: one call went out in %d forms: %q", len(distinct), log)
	}
}
