// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func expiryRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"L8_omitted_body_is_a_tombstone_at_once",
			"A result whose body is not kept is a tombstone at once: it has status, reference and fingerprint, and is never executed again.",
			omittedBody[TTx],
		},
		{
			"L9_lifetimes_run_from_completion",
			"Both lifetimes run from completion, by the clock of the database.",
			lifetimes[TTx],
		},
		{
			"L9_body_goes_after_its_retention",
			"A completed record is answered in full until its retention ends, and from then on is a tombstone, before and after a purge.",
			bodyGoes[TTx],
		},
		{
			"L9_forgotten_key_is_absent",
			"A tombstone that has ended does not exist: the key executes again, whether or not a purge has run.",
			forgottenKey[TTx],
		},
		{
			"L9_forgotten_key_is_executed_once",
			"Of concurrent attempts under a key that was forgotten one commits, also while its old record is being purged.",
			forgottenOnce[TTx],
		},
		{
			"L9_purge_drops_what_it_says",
			"Purge really drops bodies and tombstones that have ended: they do not come back when clocks are set back.",
			purgeDrops[TTx],
		},
		{
			"L9_purge_works_in_batches",
			"Purge changes at most limit records at a time, says how many, and does nothing once it is done.",
			purgeBatches[TTx],
		},
		{
			"L9_two_purges_at_once_share_the_work",
			"Purges that run at once in two processes change each record once and fail nothing.",
			purgesShare[TTx],
		},
		{
			"L9_purge_never_touches_unfinished_work",
			"Purge never touches a run in progress, however old it is: its input and its steps stay.",
			purgeSparesRuns[TTx],
		},
	}
}

func omittedBody[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in, run := intent("k-1"), intent("k-2")
	f.mustExecute(f.d, in, func(c *store.Completion) { c.OmitBody = true })
	begun := f.mustBegin(f.d, run, nil)
	done := completion(claim(run))
	done.OmitBody = true
	f.mustPhase(f.d, own(begun), store.PhaseWrites{Complete: &done})
	for range 2 {
		for _, in := range []reprise.Intent{in, run} {
			for _, d := range []store.Driver[TTx]{f.d, second} {
				f.wantTombstone(d, in)
			}
		}
		f.age(retention + time.Hour)
	}
	f.wantEffects(effectOf(in), 1)
	f.age(tombstone)
	f.mustExecute(second, in)
}

// wantTombstone fails if the intent is not answered with a tombstone that names
// its result.
func (f *fixture[TTx]) wantTombstone(d store.Driver[TTx], in reprise.Intent) {
	f.Helper()
	for _, e := range []store.Entry{f.mustReplay(d, in), f.mustFind(d, in)} {
		if e.State != reprise.StateTombstone || len(e.Result.Body)+len(e.Result.Header) != 0 {
			f.Errorf("%q is %s with a body of %d bytes and header %q, want a bare tombstone",
				in.Key, e.State, len(e.Result.Body), e.Result.Header)
		}
		if e.Intent != in || e.Result.Status != 201 || e.Result.Reference != "/orders/1" {
			f.Errorf("the tombstone of %+v says %+v, status %d, reference %q", in, e.Intent, e.Result.Status, e.Result.Reference)
		}
		if e.TombstoneUntil.IsZero() {
			f.Errorf("the tombstone of %q does not say how long it refuses", in.Key)
		}
	}
}

func lifetimes[TTx any](f *fixture[TTx]) {
	run := f.mustBegin(f.d, intent("k-2"), nil)
	f.age(5 * time.Hour)
	done := completion(claim(run.Intent))
	f.mustPhase(f.d, own(run), store.PhaseWrites{Complete: &done})
	for _, e := range []store.Entry{f.mustExecute(f.d, intent("k-1")), f.mustFind(f.d, run.Intent)} {
		if got := e.ExpiresAt.Sub(e.CompletedAt); got < retention-time.Second || got > retention+usualPatience {
			f.Errorf("the body of %q is kept for %s after completion, want %s", e.Intent.Key, got, retention)
		}
		if got := e.TombstoneUntil.Sub(e.CompletedAt); got < tombstone-time.Second || got > tombstone+usualPatience {
			f.Errorf("the key %q is refused for %s after completion, want %s", e.Intent.Key, got, tombstone)
		}
		if e.ClaimedAt.IsZero() || e.CompletedAt.Before(e.ClaimedAt) {
			f.Errorf("%q was claimed at %s and completed at %s", e.Intent.Key, e.ClaimedAt, e.CompletedAt)
		}
	}
	if e := f.mustFind(f.d, run.Intent); e.CompletedAt.Sub(e.ClaimedAt) < 5*time.Hour-time.Second {
		f.Errorf("a run that took 5 h was claimed at %s and completed at %s", e.ClaimedAt, e.CompletedAt)
	}
}

func bodyGoes[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	first := f.mustExecute(f.d, in)
	f.age(retention - time.Hour)
	f.purge(f.d)
	for _, d := range []store.Driver[TTx]{f.d, second} {
		e := f.mustReplay(d, in)
		f.wantResult("shortly before the retention ends", first.Result, e.Result)
		if e.State != reprise.StateCompleted {
			f.Errorf("shortly before the retention ends the record is %s", e.State)
		}
	}
	f.age(2 * time.Hour)
	f.wantTombstone(f.d, in)
	f.wantTombstone(second, in)
	if n := f.purge(second); n != 1 {
		f.Errorf("the purge changed %d records, want 1", n)
	}
	f.wantTombstone(f.d, in)
	f.wantTombstone(second, in)
	f.age(tombstone - retention - 2*time.Hour)
	f.purge(second)
	f.wantTombstone(f.d, in)
	f.wantTombstone(second, in)
	f.wantEffects(effectOf(in), 1)
}

func forgottenKey[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	for n, purge := range []bool{false, true} {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", n)))
		staged := intent(reprise.Key(fmt.Sprintf("r-%d", n)))
		f.mustExecute(f.d, in)
		f.mustExecute(f.d, staged)
		f.age(tombstone + time.Hour)
		if purge {
			f.purge(f.d)
		}
		f.wantAbsent(f.d, in)
		f.wantAbsent(second, in)
		anew := f.mustExecute(second, other(in))
		if anew.Intent != other(in) {
			f.Errorf("the new record keeps %+v, want %+v", anew.Intent, other(in))
		}
		f.wantSame("the new record", anew, f.mustReplay(f.d, other(in)))
		f.wantEffects(effectOf(in), 2)
		if e := f.mustBegin(second, other(staged), []byte("anew")); e.State != reprise.StateInProgress || e.Drives != 1 {
			f.Errorf("a run under a forgotten key is %s in drive %d", e.State, e.Drives)
		}
		f.purge(f.d)
		f.mustReplay(f.d, other(in))
		f.mustFind(f.d, staged)
	}
}

func forgottenOnce[TTx any](f *fixture[TTx]) {
	const rounds, attempts = 4, 12
	drivers := f.both()
	for round := range rounds {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", round)))
		f.mustExecute(f.d, in)
		f.age(tombstone + time.Hour)
		var (
			wg       sync.WaitGroup
			start    = make(chan struct{})
			executed atomic.Int32
		)
		for n := range attempts {
			wg.Go(func() {
				<-start
				err := again(f.ctx, func() error {
					if n%4 == 3 {
						_, err := drivers[n%2].Purge(f.ctx, 10)
						return err
					}
					_, ran, err := f.execute(drivers[n%2], in)
					if ran {
						executed.Add(1)
					}
					return err
				})
				if err != nil {
					f.Errorf("attempt %d: %v", n, err)
				}
			})
		}
		close(start)
		wg.Wait()
		if n := executed.Load(); n != 1 {
			f.Errorf("%d attempts say that they executed, want 1", n)
		}
		f.wantEffects(effectOf(in), 2)
		f.mustReplay(f.d, in)
	}
}

// purge purges until nothing is left to do, and returns how many records changed.
func (f *fixture[TTx]) purge(d store.Driver[TTx]) (total int) {
	f.Helper()
	for {
		var n int
		err := again(f.ctx, func() (err error) { n, err = d.Purge(f.ctx, 100); return err })
		if err != nil {
			f.Fatalf("purge: %v", err)
		}
		if total += n; n < 100 {
			return total
		}
	}
}

func purgeDrops[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	f.mustExecute(f.d, in)
	f.age(retention + time.Hour)
	f.purge(f.d)
	f.age(-2 * time.Hour)
	f.wantTombstone(f.d, in)
	f.age(tombstone)
	f.purge(f.d)
	f.age(-tombstone)
	f.wantAbsent(f.d, in)
}

func purgeBatches[TTx any](f *fixture[TTx]) {
	const records = 23
	for n := range records {
		f.mustExecute(f.d, intent(reprise.Key(fmt.Sprintf("k-%d", n))))
	}
	fresh := func() { f.Helper(); f.mustExecute(f.d, intent(reprise.NewKey())) }
	batches := func(what string, limit, want int) {
		for want > 0 {
			n, err := f.d.Purge(f.ctx, limit)
			if err != nil || n != min(limit, want) {
				f.Fatalf("%s: a batch of at most %d changed %d of %d records, error %v", what, limit, n, want, err)
			}
			want -= n
		}
		if n, err := f.d.Purge(f.ctx, limit); err != nil || n != 0 {
			f.Errorf("%s: with nothing left the purge changed %d records, error %v", what, n, err)
		}
	}
	batches("before anything has ended", 10, 0)
	f.age(retention + time.Hour)
	fresh()
	batches("bodies", 10, records)
	f.age(tombstone - retention - 2*time.Hour)
	batches("the body of the later one", 10, 1)
	f.age(2 * time.Hour)
	fresh()
	batches("tombstones", 1, records)
	entries, err := f.d.Entries(f.ctx, store.EntryFilter{})
	if err != nil || len(entries) != 2 {
		f.Errorf("%d records are left, error %v; want the 2 that were made later", len(entries), err)
	}
}

func purgesShare[TTx any](f *fixture[TTx]) {
	const records, limit = 60, 7
	for n := range records {
		f.mustExecute(f.d, intent(reprise.Key(fmt.Sprintf("k-%d", n))))
	}
	drivers := f.both()
	for _, step := range []time.Duration{retention + time.Hour, tombstone} {
		f.age(step)
		var (
			wg      sync.WaitGroup
			start   = make(chan struct{})
			changed atomic.Int64
		)
		for n := range 4 {
			wg.Go(func() {
				<-start
				for {
					var batch int
					err := again(f.ctx, func() (err error) { batch, err = drivers[n%2].Purge(f.ctx, limit); return err })
					if err != nil {
						f.Errorf("purge: %v", err)
					}
					changed.Add(int64(batch))
					if err != nil || batch == 0 {
						return
					}
				}
			})
		}
		close(start)
		wg.Wait()
		if n := changed.Load(); n != records {
			f.Errorf("the purges say that they changed %d records, want %d", n, records)
		}
	}
}

func purgeSparesRuns[TTx any](f *fixture[TTx]) {
	const ancient = 10 * 365 * 24 * time.Hour
	in := intent("k-1")
	begun := f.mustBegin(f.d, in, []byte("input"))
	f.mustPhase(f.d, own(begun), store.PhaseWrites{Step: plannedStep("charge")})
	f.mustExecute(f.d, intent("k-2"))
	f.age(ancient)
	if f.purge(f.d) == 0 {
		f.Errorf("the purge changed nothing, though a completed record had ended")
	}
	f.wantAbsent(f.d, intent("k-2"))
	e := f.mustFind(f.d, in)
	if e.State != reprise.StateInProgress || string(e.Input) != "input" || e.Epoch != begun.Epoch || e.Intent != in {
		f.Errorf("after the purge the run is %s in epoch %d with input %q, want it as it was", e.State, e.Epoch, e.Input)
	}
	f.wantSteps(f.d, begun.ID, *plannedStep("charge"))
	f.mustTakeOver(f.d, in, begun)
}
