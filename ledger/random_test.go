// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

// TestRandom lets clients with two contents under one key and passes of recovery
// meet in several processes at drawn moments, while calls are slow or lose their
// answers and processes are cut off at drawn commits. Afterwards one process that
// works is asked, and everything that anybody was told must have been true.
func TestRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Without its Deadline, which belongs to the clock outside the bubble.
		rapid.Check(struct{ rapid.TB }{t}, interleave)
	})
}

// actor is one client's attempt, or one pass of recovery.
type actor struct {
	process     int
	at          time.Duration
	fingerprint byte // 0 is recovery.
}

func interleave(t *rapid.T) {
	moments := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond
	})
	db, psp := newMemory(), newProvider()
	psp.decline = rapid.Bool().Draw(t, "decline")
	troubles := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "slow", "slower", "lost", "refused"}), 0, 10).Draw(t, "troubles")
	psp.before = func() error { return trouble(&troubles, &psp.mu, "refused") }
	psp.after = func() error { return trouble(&troubles, &psp.mu, "lost", "slow", "slower") }

	var staged []*ledger.Staged[*memoryTx]
	var ledgers []*ledger.Ledger[*memoryTx]
	for range rapid.IntRange(1, 3).Draw(t, "processes") {
		p := &process{
			db: db, at: rapid.IntRange(0, 12).Draw(t, "commit"),
			fault: rapid.SampledFrom([]fault{conflict, lostKept, lostDropped, cutAfter, cutBefore}).Draw(t, "fault"),
		}
		l, s := start(t, p, pay(psp, nil), nil)
		ledgers, staged = append(ledgers, l), append(staged, s)
	}
	actors := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) actor {
		return actor{
			process: rapid.IntRange(0, len(staged)-1).Draw(t, "process"), at: moments.Draw(t, "at"),
			fingerprint: rapid.SampledFrom([]byte{0, 1, 1, 1, 2}).Draw(t, "fingerprint"),
		}
	}), 1, 12).Draw(t, "actors")

	type told struct {
		actor
		answer ledger.Answer
		err    error
	}
	var mu sync.Mutex
	var all []told
	var wg sync.WaitGroup
	ctx := t.Context()
	for _, a := range actors {
		wg.Go(func() {
			time.Sleep(a.at)
			if a.fingerprint == 0 {
				_, _ = ledgers[a.process].Recover(ctx)
				return
			}
			r := told{actor: a}
			r.answer, r.err = staged[a.process].Do(ctx, payment("k", a.fingerprint), ledger.Options{}, []byte{a.fingerprint})
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
	wg.Wait()

	troubles = nil
	_, s := start(t, &process{db: db}, pay(psp, nil), nil)
	winner := db.entry(payment("k", 1)).Intent.Fingerprint[1]
	if winner == 0 {
		winner = 1 // Nobody got as far as a claim.
	}
	in := payment("k", winner)
	var final ledger.Answer
	var err error
	for range 100 {
		if final, err = s.Do(ctx, in, ledger.Options{}, []byte{winner}); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	want, charges := []string{"reserved", "paid"}, 1
	if psp.decline {
		want, charges = []string{"reserved", "declined"}, 0
	}
	if err != nil || !slices.Equal(db.rows, want) {
		t.Fatalf("ended with %+v, %v and the rows %v, want %v", final, err, db.rows, want)
	}
	psp.check(t, in, charges)
	for _, r := range all {
		switch {
		case r.err == nil && (r.fingerprint != winner || r.answer.Result.Status != final.Result.Status || !bytes.Equal(r.answer.Result.Body, final.Result.Body)):
			t.Errorf("%+v was answered %+v, and the record says %+v", r.actor, r.answer, final)
		case errors.Is(r.err, reprise.ErrKeyReused) && r.fingerprint == winner:
			t.Errorf("%+v was turned away although its content is what the key stands for", r.actor)
		case r.err != nil && reprise.OutcomeOf(r.err) == reprise.Rejected:
			t.Errorf("%+v was told %v", r.actor, r.err)
		}
	}
}

// trouble takes the next trouble if it is one of kinds, and makes it.
func trouble(troubles *[]string, mu *sync.Mutex, kinds ...string) error {
	mu.Lock()
	kind := ""
	if len(*troubles) > 0 && (slices.Contains(kinds, (*troubles)[0]) || (*troubles)[0] == "") {
		kind = (*troubles)[0]
		*troubles = (*troubles)[1:]
	}
	mu.Unlock()
	switch kind {
	case "slow":
		time.Sleep(time.Second)
	case "slower":
		time.Sleep(25 * time.Second)
	case "lost":
		return errors.New("connection reset")
	case "refused":
		return &reprise.Error{Code: "refused", Outcome: reprise.NotProcessed}
	}
	return nil
}
