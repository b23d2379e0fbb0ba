// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
)

// driver is what the mutants are made of.
type driver = store.Driver[*sql.Tx]

// mutant is a driver that is broken on purpose in one way. It proves that the
// suite can fail: each rule that it breaks must fail on it and must be named.
type mutant struct {
	name string
	// breaks are the rules that must catch it.
	breaks []string
	// wrap breaks a good driver.
	wrap func(d driver, s *sabotage) driver
	// statements break the database of a good driver instead.
	statements []string
}

// sabotage is the state of one broken database. All its processes share it.
type sabotage struct {
	// fired counts how often the breakage was reached. A mutant that never acted
	// proves nothing.
	fired atomic.Int64
	// db is the database behind the driver's back.
	db *sql.DB
	// mu guards memory, in which a mutant keeps what belongs on disk.
	mu     sync.Mutex
	memory map[any]any
}

// exec changes the database behind the driver's back.
func (s *sabotage) exec(statement string, args ...any) {
	s.fired.Add(1)
	if _, err := s.db.Exec(statement, args...); err != nil {
		panic(fmt.Sprintf("the sabotage %q failed: %v", statement, err))
	}
}

// betweenTransactions makes the moment between two transactions that should have
// been one long enough to be seen on a busy machine too.
const betweenTransactions = 20 * time.Millisecond

// mutantPatience is short: some mutants lose what a rule waits for.
const mutantPatience = 3 * time.Second

func TestMain(m *testing.M) {
	// The random histories of a mutant fail on purpose: don't write them down,
	// and don't look for the shortest one for long.
	flag.Parse()
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "1s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	byName := map[string]rule[*sql.Tx]{}
	for _, r := range rules[*sql.Tx]() {
		if _, twice := byName[r.name]; twice {
			t.Errorf("two rules are called %s", r.name)
		}
		byName[r.name] = r
	}
	broken := map[string]bool{}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range m.breaks {
				r, ok := byName[name]
				if !ok {
					t.Errorf("there is no rule %s", name)
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					mustCatch(t, r, m)
				})
			}
		})
		for _, name := range m.breaks {
			broken[name] = true
		}
	}
	for _, r := range rules[*sql.Tx]() {
		if !broken[r.name] {
			t.Errorf("no mutant breaks %s: nothing shows that it can fail", r.name)
		}
	}
}

// mustCatch runs one rule on the mutant and fails unless the rule fails, says
// which rule it is, and the breakage was reached. A rule that provokes a race
// may miss it on a busy machine, so it has ten tries.
func mustCatch(t *testing.T, r rule[*sql.Tx], m mutant) {
	var seen *observed
	fired := int64(0)
	for try := 0; try < 10 && (try == 0 || fired == 0 || !seen.Failed()); try++ {
		seen, fired = observe(t, r, m)
	}
	switch {
	case fired == 0:
		t.Errorf("the breakage %q was never reached", m.name)
	case !seen.Failed():
		t.Errorf("%s passes although %s", r.name, m.name)
	case !slices.Contains(seen.lines, "broken rule "+r.name+": "+r.says):
		t.Errorf("the failure does not name the broken rule: %q", seen.lines)
	}
	if testing.Verbose() {
		t.Logf("caught: %.600s", strings.Join(seen.lines[:min(len(seen.lines), 3)], "\n"))
	}
}

// TestUnbrokenDriverBreaksNoRule is the control: what catches the mutants finds
// nothing wrong with the driver that they are made of.
func TestUnbrokenDriverBreaksNoRule(t *testing.T) {
	t.Parallel()
	for _, r := range rules[*sql.Tx]() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			seen := &observed{TB: t}
			seen.run(func() { r.run(seen, harness(), usualPatience) })
			if seen.Failed() {
				t.Errorf("%s breaks on a driver that nobody broke:\n%s", r.name, strings.Join(seen.lines, "\n"))
			}
		})
	}
}

// observe runs one rule on the mutant, and counts how often it acted.
func observe(t *testing.T, r rule[*sql.Tx], m mutant) (seen *observed, fired int64) {
	var states sync.Map
	h := harness()
	create, open := h.Create, h.Open
	h.Create = func(tb testing.TB) string {
		name := create(tb)
		states.Store(name, &sabotage{db: openDB(t, name), memory: map[any]any{}})
		return name
	}
	h.Open = func(tb testing.TB, name string) (driver, func()) {
		d, stop := open(tb, name)
		state, _ := states.Load(name)
		s := state.(*sabotage)
		for _, statement := range m.statements {
			s.exec(statement)
		}
		if m.wrap != nil {
			d = m.wrap(d, s)
		}
		return d, stop
	}
	seen = &observed{TB: t}
	seen.run(func() { r.run(seen, h, mutantPatience) })
	states.Range(func(_, state any) bool {
		fired += state.(*sabotage).fired.Load()
		return true
	})
	return seen, fired
}

// observed is a testing.TB whose failures are looked at instead of reported.
// Clean-ups and temporary directories are those of the real one.
type observed struct {
	testing.TB

	mu     sync.Mutex
	failed bool
	lines  []string
}

// run calls fn, which may fail for good in the middle.
func (o *observed) run(fn func()) {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		fn()
	}()
	if p := <-ended; p != nil {
		o.TB.Errorf("the rule panicked: %v", p)
	}
}

func (o *observed) say(fails bool, line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = o.failed || fails
	o.lines = append(o.lines, line)
}

func (o *observed) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

func (o *observed) Log(args ...any)                 { o.say(false, fmt.Sprintln(args...)) }
func (o *observed) Logf(format string, args ...any) { o.say(false, fmt.Sprintf(format, args...)) }
func (o *observed) Fail()                           { o.say(true, "failed") }
func (o *observed) Error(args ...any)               { o.say(true, fmt.Sprintln(args...)) }
func (o *observed) Errorf(format string, args ...any) {
	o.say(true, fmt.Sprintf(format, args...))
}
func (o *observed) FailNow() { o.Fail(); runtime.Goexit() }
func (o *observed) Fatal(args ...any) {
	o.Error(args...)
	runtime.Goexit()
}
func (o *observed) Fatalf(format string, args ...any) {
	o.Errorf(format, args...)
	runtime.Goexit()
}
