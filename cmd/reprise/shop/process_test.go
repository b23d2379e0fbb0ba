// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/command"
	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

// asReprise makes the test binary be the program, so that what is killed below is
// a process of its own, and the same code that is tested, race detector and all.
const asReprise = "REPRISE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asReprise) != "" {
		os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	if boundary := os.Getenv(crashAt); boundary != "" {
		os.Exit(runUntilCrash(boundary, os.Args[1], os.Args[2], os.Args[3]))
	}
	os.Exit(dbtest.Main(m))
}

// process is one running "reprise shop".
type process struct {
	t          *testing.T
	cmd        *exec.Cmd
	api, admin string
	stderr     *strings.Builder
	ended      chan struct{}
}

// prepare returns the command of "reprise shop" with args, which is not started.
func prepare(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"shop", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), asReprise+"=1")
	return cmd
}

// start runs a shop until the test ends, and waits until it listens.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, prepare(args...))
	if p.admin == "" {
		t.Fatalf("the shop did not start: %s", p.stderr)
	}
	return p
}

// launch starts a command that is a shop, and waits until it listens or ends: then
// it has no addresses.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stderr: new(strings.Builder), ended: make(chan struct{})}
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	lines := bufio.NewScanner(stdout)
	for p.api == "" || p.admin == "" {
		if !lines.Scan() {
			_ = p.cmd.Wait()
			close(p.ended)
			return p
		}
		var line struct{ Listening, Role string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		switch line.Role {
		case "api":
			p.api = "http://" + line.Listening
		case "admin":
			p.admin = "http://" + line.Listening
		}
	}
	go func() {
		for lines.Scan() { // A provider may be announced yet.
		}
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// signal sends s to the process.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process with SIGKILL, if it still runs.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// exit waits for the end of the process and returns its state.
func (p *process) exit() *os.ProcessState {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the shop does not end: %s", p.stderr)
	}
	return p.cmd.ProcessState
}

// world is w with the listeners of p.
func (p *process) world(pr *provider) *world {
	return &world{t: p.t, api: p.api, admin: p.admin, provider: pr}
}

// insist sends a payment under one key until it is answered with something that
// is final, as a client does.
func (w *world) insist(order, key, ref string) reply {
	w.t.Helper()
	var r reply
	if !eventually(func() bool {
		r = w.pay(order, key, ref)
		return r.status != 0 && r.status != 503 && r.text("code") != "in-progress"
	}) {
		w.t.Errorf("no final answer: %v", r)
	}
	return r
}

// TestKilledDuringPayment kills the shop with SIGKILL while a payment is at every
// stage of a call that went wrong, starts another one on the same database, and
// lets the client repeat: one order, one charge, one event, one delivery.
func TestKilledDuringPayment(t *testing.T) { onEach(t, testKilledDuringPayment) }

func testKilledDuringPayment(t *testing.T, on kind) {
	faults := []psp.Fault{psp.CommitThenReset, psp.Hang}
	if !on.server {
		faults = append(faults, psp.HangBefore, psp.ErrorAfterCommit, psp.ErrorBefore, psp.Conflict)
	}
	for _, fault := range faults {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			pr := openProvider(t)
			args := []string{"--db", on.fresh(t), "--psp", pr.url, "--lease", "500ms", "--psp-timeout", "20s"}
			first := start(t, args...)
			w := first.world(pr)
			path, key := w.order("killed"), newKey()
			pr.fault(t, 1, fault)
			answered := make(chan reply, 1)
			go func() { answered <- w.pay(path, key, "killed") }()
			if !eventually(func() bool { return pr.fired(t, fault) == 1 }) {
				t.Fatal("the fault did not fire")
			}
			first.kill()
			if r := <-answered; r.status != 0 && r.status != 503 {
				t.Fatalf("the answer of a shop that was killed: %v", r)
			}

			w = start(t, args...).world(pr)
			r := w.insist(path, key, "killed")
			w.want(r, 201, "")
			if again := w.pay(path, key, "killed"); again.body != r.body || !again.replayed() {
				t.Error(again)
			}
			w.settle("killed", paid)
			for _, c := range pr.charges() {
				if c != pr.charges()[0] {
					t.Errorf("the provider was sent %v", pr.charges())
				}
			}
		})
	}
	t.Run("and the client never comes back", func(t *testing.T) {
		t.Parallel()
		pr := openProvider(t)
		args := []string{"--db", on.fresh(t), "--psp", pr.url, "--lease", "500ms", "--psp-timeout", "20s"}
		first := start(t, args...)
		w := first.world(pr)
		path, key := w.order("orphan"), newKey()
		pr.fault(t, 1, psp.Hang)
		go w.pay(path, key, "orphan")
		if !eventually(func() bool { return pr.fired(t, psp.Hang) == 1 }) {
			t.Fatal("the fault did not fire")
		}
		first.kill()
		start(t, args...).world(pr).settle("orphan", paid)
	})
}

func TestRestart(t *testing.T) { onEach(t, testRestart) }

func testRestart(t *testing.T, on kind) {
	for name, end := range map[string]func(*process){
		"after SIGTERM": func(p *process) {
			p.signal(syscall.SIGTERM)
			if s := p.exit(); s.ExitCode() != 0 {
				p.t.Errorf("%v: %s", s, p.stderr)
			}
		},
		"after SIGKILL": (*process).kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The builtin provider: its charges have to survive too.
			args := []string{"--db", on.fresh(t)}
			if on.server {
				args = append(args, "--psp-db", "sqlite:"+filepath.Join(t.TempDir(), "psp.db"))
			}
			p := start(t, args...)
			w := p.world(nil)
			key, pay := newKey(), newKey()
			create := call{method: "POST", path: "/orders", key: key, body: orderBody("kept")}
			first := w.do(create)
			paidFirst := w.pay(first.header.Get("Location"), pay, "kept")
			w.want(paidFirst, 201, "")
			end(p)

			w = start(t, args...).world(nil)
			if again := w.do(create); again.body != first.body || again.header.Get("ETag") != first.header.Get("ETag") || !again.replayed() {
				t.Error(again)
			}
			if again := w.pay(first.header.Get("Location"), pay, "kept"); again.body != paidFirst.body || !again.replayed() {
				t.Error(again)
			}
			w.settle("kept", paid)
		})
	}
}

func TestTwoShops(t *testing.T) { onEach(t, testTwoShops) }

func testTwoShops(t *testing.T, on kind) {
	pr := openProvider(t)
	args := []string{"--db", on.fresh(t), "--psp", pr.url, "--lease", "500ms", "--psp-timeout", "20s"}
	a, b := start(t, args...), start(t, args...)
	both := []*world{a.world(pr), b.world(pr)}

	t.Run("one order for one key sent to both at once", func(t *testing.T) {
		for round := range 5 {
			ref, key := fmt.Sprint("shared", round), newKey()
			var mu sync.Mutex
			bodies := map[string]int{}
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					var r reply
					// On a busy machine one process can wait too long for the other's lock.
					if !eventually(func() bool {
						r = both[i%2].do(call{method: "POST", path: "/orders", key: key, body: orderBody(ref)})
						return r.status != 503
					}) || r.status != 201 {
						t.Error(r)
					}
					mu.Lock()
					defer mu.Unlock()
					bodies[r.body]++
				})
			}
			wg.Wait()
			if len(bodies) != 1 {
				t.Errorf("%d different answers", len(bodies))
			}
			both[round%2].in(t).settle(ref, effects{Orders: 1, Events: counts{"order.created": 1}})
		}
	})
	t.Run("one payment for one key sent to both at once", func(t *testing.T) {
		path, key := both[0].in(t).order("paid"), newKey()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				if r := both[i%2].insist(path, key, "paid"); r.status != 201 {
					t.Error(r)
				}
			})
		}
		wg.Wait()
		both[1].in(t).settle("paid", paid)
	})
	t.Run("one finishes what the other was killed at", func(t *testing.T) {
		w := both[0].in(t)
		path, key := w.order("orphan"), newKey()
		pr.fault(t, 1, psp.Hang)
		go w.pay(path, key, "orphan")
		if !eventually(func() bool { return pr.fired(t, psp.Hang) == 1 }) {
			t.Fatal("the fault did not fire")
		}
		a.kill()
		both[1].in(t).settle("orphan", paid)
		if r := both[1].pay(path, key, "orphan"); r.status != 201 || !r.replayed() {
			t.Error(r)
		}
	})
}

// hanging starts a shop with a payment whose provider does not answer.
func hanging(t *testing.T, args ...string) (p *process, pr *provider, answered chan reply, path, key string) {
	t.Helper()
	pr = openProvider(t)
	p = start(t, append([]string{"--db", "sqlite:" + filepath.Join(t.TempDir(), "shop.db"), "--psp", pr.url, "--psp-timeout", "20s"}, args...)...)
	w := p.world(pr)
	path, key = w.order("hanging"), newKey()
	pr.fault(t, 1, psp.Hang)
	answered = make(chan reply, 1)
	go func() { answered <- w.pay(path, key, "hanging") }()
	if !eventually(func() bool { return pr.fired(t, psp.Hang) == 1 }) {
		t.Fatal("the fault did not fire")
	}
	return p, pr, answered, path, key
}

func TestSIGTERM(t *testing.T) {
	t.Parallel()
	t.Run("ends the work in flight, takes no other, and exits 0", func(t *testing.T) {
		t.Parallel()
		p, pr, answered, _, _ := hanging(t)
		if r := send(t, "GET", p.admin+"/readyz", nil, nil); r.status != 200 {
			t.Fatal(r)
		}
		p.signal(syscall.SIGTERM)
		if !eventually(func() bool { return send(t, "GET", p.admin+"/readyz", nil, nil).status == 503 }) {
			t.Error("the shop is still ready")
		}
		if r := send(t, "GET", p.admin+"/healthz", nil, nil); r.status != 200 {
			t.Errorf("a shop that drains is not dead: %v", r)
		}
		if !eventually(func() bool { return p.world(pr).get("/orders").status == 0 }) {
			t.Error("the shop still takes requests")
		}
		select {
		case r := <-answered:
			t.Fatalf("the payment was cut off: %v", r)
		case <-p.ended:
			t.Fatal("the shop did not wait for the payment")
		default:
		}
		pr.psp.Release()
		wantProblem(t, <-answered, 503, "outcome-unknown")
		if s := p.exit(); s.ExitCode() != 0 {
			t.Errorf("%v: %s", s, p.stderr)
		}
	})
	t.Run("cuts off what takes longer than --drain, and says so", func(t *testing.T) {
		t.Parallel()
		p, _, answered, _, _ := hanging(t, "--drain", "200ms")
		p.signal(syscall.SIGTERM)
		if r := <-answered; r.status != 0 {
			t.Errorf("answered %v", r)
		}
		if s := p.exit(); s.ExitCode() != 1 || !strings.Contains(p.stderr.String(), "error: the api listener was closed with requests in flight") {
			t.Errorf("%v: %s", s, p.stderr)
		}
	})
	t.Run("a second time ends at once", func(t *testing.T) {
		t.Parallel()
		p, _, _, _, _ := hanging(t)
		p.signal(syscall.SIGTERM)
		if !eventually(func() bool { return send(t, "GET", p.admin+"/readyz", nil, nil).status == 503 }) {
			t.Fatal("the shop is still ready")
		}
		// That the shop is not ready is known a moment before the second signal is
		// as deadly as usual.
		if !eventually(func() bool {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.ended:
				return true
			default:
				return false
			}
		}) {
			t.Fatal("the shop does not end")
		}
		if status, ok := p.exit().Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
			t.Errorf("%v", p.cmd.ProcessState)
		}
	})
}

func TestSIGHUP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("s3cret alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--db", "sqlite:"+filepath.Join(t.TempDir(), "shop.db"), "--tokens", file)
	w := p.world(nil)
	w.want(w.as("Bearer s3cret"), 200, "")
	if err := os.WriteFile(file, []byte("s3cret alice revoked\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	if !eventually(func() bool { return w.as("Bearer s3cret").status == 401 }) {
		t.Error("the token is not revoked")
	}
}
