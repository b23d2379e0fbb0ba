// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/ledger"
)

// waiting chooses the transactions that are committed and wait for the standby.
const waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'"

// cutOff ends the sessions of those transactions, and counts them.
const cutOff = "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) " + waiting + ") AS ended"

// startPair starts a synchronous pair, which ends with the test.
func startPair(t *testing.T) *dbserver.PostgresPair {
	t.Helper()
	pair, err := dbserver.StartPostgresPair(t.Context(), dbserver.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pair.Stop(); err != nil {
			t.Error(err)
		}
	})
	return pair
}

// attempt is one call of Do, under way.
type attempt struct {
	answer ledger.Answer
	err    error
	done   chan struct{}
}

// try lets a process begin an order.
func (s *service[TTx]) try(ref reprise.Key) *attempt {
	a := &attempt{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.answer, a.err = s.do(ref)
	}()
	return a
}

// acknowledged reports whether the client was told that there is an order.
func (a *attempt) acknowledged() bool {
	<-a.done
	return a.err == nil
}

// DurableReplay shows what a commit that nobody confirmed does to those who read
// it, and that the option of this name is what keeps it from them.
//
// The standby is down, so a COMMIT waits for it. The connection that waits is ended
// by the server: the order is committed there, and nowhere else. Who looks now finds
// its record. When the standby is promoted, that record has never been.
func DurableReplay[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("DurableReplay=%v", durable), func(t *testing.T) {
			t.Parallel()
			replayOfUnconfirmed(t, h, durable)
		})
	}
}

func replayOfUnconfirmed[TTx any](t *testing.T, h Harness[TTx], durable bool) {
	pair := startPair(t)
	dsn, o := pair.Primary.DSN("postgres"), Options{DurableReplay: durable}
	see := observe(t, dsn)
	s, other := h.open(t, dsn, o, nil), h.open(t, dsn, o, nil)
	t.Cleanup(func() { _ = pair.Primary.Kill() }) // Lets a test that failed half way end.
	if _, err := s.do("confirmed"); err != nil {
		t.Fatal(err)
	}
	if err := pair.Standby.Kill(); err != nil {
		t.Fatal(err)
	}

	first := s.try("k")
	see.eventually("COMMIT waits for the standby", func() bool { return see.number("SELECT count(*) "+waiting) == 1 })
	if n := see.number(cutOff); n != 1 {
		t.Fatalf("%d waits were cut off, want 1", n)
	}
	see.eventually("the order can be seen", func() bool { return see.number("SELECT count(*) FROM orders WHERE ref = 'k'") == 1 })
	repeat := other.try("k")

	if durable {
		// Both look for the record, find it, and now wait as the COMMIT did.
		see.eventually("both answers wait for the standby", func() bool {
			select {
			case <-first.done:
				t.Fatalf("the attempt did not wait for the standby: %+v, %v", first.answer, first.err)
			case <-repeat.done:
				t.Fatalf("its repeat did not wait for the standby: %+v, %v", repeat.answer, repeat.err)
			default:
			}
			return see.number("SELECT count(*) "+waiting) == 2
		})
	} else if !first.acknowledged() || !repeat.acknowledged() {
		t.Errorf("the hazard is not there: %v and %v", first.err, repeat.err)
	}
	if err := pair.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*attempt{"the attempt": first, "its repeat": repeat} {
		if a.acknowledged() != !durable {
			t.Errorf("%s was answered %+v, %v", name, a.answer, a.err)
		}
		if durable && reprise.OutcomeOf(a.err) != reprise.Unknown {
			t.Errorf("%s was told %v, want unknown", name, a.err)
		}
	}

	if err := pair.Standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := pair.Standby.DSN("postgres")
	see = observe(t, promoted)
	see.effects(1) // The confirmed one. An acknowledged order is missing, unless nobody was told of it.
	after := h.open(t, promoted, o, nil)
	if a, err := after.do("confirmed"); err != nil || !a.Replayed {
		t.Errorf("the confirmed order is answered %+v, %v", a, err)
	}
	if a, err := after.do("k"); err != nil || a.Replayed {
		t.Errorf("the lost intent is answered %+v, %v", a, err)
	}
	see.effects(2)
}

// DurableReplayBesideFailover replaces the server between the look that finds a
// record and the transaction that confirms it. The new one never had the record and
// confirms whatever it is asked to, so it must be asked for the record.
func DurableReplayBesideFailover[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for _, number := range []int{0, 2} { // Who repeats looks first; who does not claims first.
		t.Run(fmt.Sprintf("attempt %d", number), func(t *testing.T) {
			t.Parallel()
			replacedServer(t, h, number)
		})
	}
}

func replacedServer[TTx any](t *testing.T, h Harness[TTx], number int) {
	before, after := dbtest.PostgresDatabase(t), dbtest.PostgresDatabase(t)
	if _, err := h.open(t, before, Options{}, nil).do("k"); err != nil {
		t.Fatal(err)
	}
	h.open(t, after, Options{}, nil)

	var left atomic.Int64 // Connections that still lead to the old server.
	left.Store(2)         // Opening the driver takes one, and so does the look.
	s, stop, err := h.start(t.Context(), before, Options{DurableReplay: true, Route: func() string {
		if left.Add(-1) >= 0 {
			return before
		}
		return after
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if n := left.Load(); n != 1 {
		t.Fatalf("opening the driver took %d connections, want 1", 2-n)
	}
	a, err := s.ledger.Do(t.Context(), intent("k"), ledger.Options{Number: number}, s.work("k"))
	if err == nil && a.Replayed {
		t.Errorf("answered %+v, and the server that is left does not know it", a)
	}
	if left.Load() >= 0 {
		t.Error("the server was not replaced")
	}
	if err != nil { // A look that finds nothing to confirm may also ask for another attempt.
		if a, err = s.ledger.Do(t.Context(), intent("k"), ledger.Options{Number: 3}, s.work("k")); err != nil || a.Replayed {
			t.Errorf("the next attempt got %+v, %v", a, err)
		}
	}
	observe(t, after).effects(1)
}
