// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func runRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"S1_claim_is_on_disk_before_any_call",
			"Begin commits the claim with its input before it returns, so that another process, or the next one, finds the run.",
			claimIsDurable[TTx],
		},
		{
			"S1_second_begin_does_not_own",
			"While a lease runs, every other Begin gets the record as it is and owns nothing.",
			secondBegin[TTx],
		},
		{
			"S1_concurrent_begins_have_one_owner",
			"Of concurrent Begins and Executes of one intent, in two processes, exactly one owns it.",
			func(f *fixture[TTx]) { concurrentOwners(f, false) },
		},
		{
			"S1_begin_does_not_own_what_is_completed",
			"Begin returns the record of an intent that was completed, by whichever mode, and owns nothing.",
			beginCompleted[TTx],
		},
		{
			"S2_concurrent_takeovers_have_one_owner",
			"Of concurrent takeovers of one lapsed run, in two processes, exactly one succeeds, under the next epoch.",
			func(f *fixture[TTx]) { concurrentOwners(f, true) },
		},
		{
			"S2_zombie_writes_nothing",
			"An owner whose run was taken over is refused with ErrLeaseLost by Phase, Renew and Withdraw: its work is not called and nothing is kept.",
			zombieWritesNothing[TTx],
		},
		{
			"S2_epoch_is_never_given_out_twice",
			"No epoch of an intent is given out twice, not even after its run was withdrawn or forgotten: a former owner can never write into a later run.",
			epochsDiffer[TTx],
		},
		{
			"S2_takeover_has_a_token_of_its_own",
			"A run that was taken over carries a token that nobody had before: an attempt that still looks for its own claim must not take this one for it.",
			takeoverHasItsOwnToken[TTx],
		},
		{
			"S2_lapsed_owner_that_nobody_replaced_goes_on",
			"An owner whose lease has lapsed still owns its run until somebody takes it over: Renew and Phase give it a new lease.",
			lapsedOwnerGoesOn[TTx],
		},
		{
			"S3_lapsed_lease_is_taken_over",
			"A run whose lease has lapsed, by the clock of the database, is taken over by the same content with its original input, one epoch and one drive later.",
			lapsedIsTakenOver[TTx],
		},
		{
			"S3_lease_is_kept_while_it_is_renewed",
			"Renew and Phase extend the lease, and nobody takes the run over meanwhile; a lease of 0 gives it up at once.",
			renewKeeps[TTx],
		},
		{
			"S6_other_content_never_takes_over",
			"A lapsed run is never taken over by another fingerprint, and is not changed by the attempt.",
			otherContentNeverTakesOver[TTx],
		},
		{
			"S6_lapsed_lists_exactly_what_recovery_must_drive",
			"Lapsed lists the runs in progress whose lease has lapsed, each once, in the order of ids, page by page, and no others.",
			lapsedLists[TTx],
		},
		{
			"S8_withdrawn_run_leaves_nothing",
			"A run withdrawn by its owner before its first step is absent at once; with a step, or by a former owner, it is left as it is.",
			withdraw[TTx],
		},
	}
}

// own names the holding that an entry was returned for.
func own(e store.Entry) store.Ownership { return store.Ownership{ID: e.ID, Epoch: e.Epoch} }

// mustBegin begins a run that must be absent.
func (f *fixture[TTx]) mustBegin(d store.Driver[TTx], in reprise.Intent, input []byte) store.Entry {
	f.Helper()
	e, owned, err := d.Begin(f.ctx, claim(in), input, lease)
	if err != nil || !owned {
		f.Fatalf("beginning the absent intent %q: owned %t, error %v", in.Key, owned, err)
	}
	return e
}

// mustTakeOver takes a lapsed run over by Begin.
func (f *fixture[TTx]) mustTakeOver(d store.Driver[TTx], in reprise.Intent, before store.Entry) store.Entry {
	f.Helper()
	e, owned, err := d.Begin(f.ctx, claim(in), []byte("not the input"), lease)
	if err != nil || !owned {
		f.Fatalf("taking the lapsed run %q over: owned %t, error %v", in.Key, owned, err)
	}
	f.wantDriven(before, e)
	return e
}

// wantDriven fails unless e is the run before, taken over once.
func (f *fixture[TTx]) wantDriven(before, e store.Entry) {
	f.Helper()
	if e.Epoch != before.Epoch+1 || e.Drives != before.Drives+1 {
		f.Errorf("taken over, the run is in epoch %d and drive %d; it was in %d and %d", e.Epoch, e.Drives, before.Epoch, before.Drives)
	}
	if e.ID != before.ID || e.Intent != before.Intent || e.State != reprise.StateInProgress || string(e.Input) != string(before.Input) {
		f.Errorf("taken over, the run is %s of %+v with input %q; it was %s of %+v with input %q",
			e.State, e.Intent, e.Input, before.State, before.Intent, before.Input)
	}
}

func claimIsDurable[TTx any](f *fixture[TTx]) {
	for n, input := range [][]byte{nil, []byte("in\x00put\xff"), make([]byte, 1<<20)} {
		d, stop := f.open()
		in := intent(reprise.Key(fmt.Sprintf("k-%d", n)))
		c := claim(in)
		e, owned, err := d.Begin(f.ctx, c, input, lease)
		if err != nil || !owned {
			f.Fatalf("begin: owned %t, error %v", owned, err)
		}
		f.wantSame("the run in another process", e, f.mustFind(f.d, in))
		stop()
		next, _ := f.open()
		f.wantSame("the run after a restart", e, f.mustFind(next, in))
		if e.State != reprise.StateInProgress || e.ID != in.ID() || e.Intent != in || e.Token != c.Token {
			f.Errorf("the new run is %s of %+v with id %s and token %x", e.State, e.Intent, e.ID, e.Token)
		}
		if e.Drives != 1 || e.Epoch < 1 || string(e.Input) != string(input) {
			f.Errorf("the new run is in drive %d and epoch %d with %d bytes of input, want 1, at least 1, and %d bytes",
				e.Drives, e.Epoch, len(e.Input), len(input))
		}
		if got := e.LeaseUntil.Sub(e.ClaimedAt); got < lease-time.Second || got > lease+usualPatience {
			f.Errorf("the lease runs for %s after the claim, want %s", got, lease)
		}
	}
}

func secondBegin[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	before := f.mustBegin(f.d, in, []byte("input"))
	for _, d := range f.both() {
		for _, again := range []reprise.Intent{in, other(in)} {
			e, owned, err := d.Begin(f.ctx, claim(again), []byte("second"), 9*lease)
			if err != nil || owned {
				f.Fatalf("begin under a running lease: owned %t, error %v", owned, err)
			}
			f.wantSame("the record for a second begin", before, e)
			f.wantSame("the record for an atomic attempt", before, f.mustReplay(d, again))
		}
		if _, err := d.Takeover(f.ctx, before.ID, lease); !errors.Is(err, store.ErrLeaseLost) {
			f.Errorf("takeover under a running lease: %v, want ErrLeaseLost", err)
		}
		f.wantSame("the run after all of them", before, f.mustFind(d, in))
	}
	f.mustPhase(f.d, own(before), store.PhaseWrites{Step: plannedStep("charge")})
}

// concurrentOwners lets many compete for one intent, absent or lapsed.
func concurrentOwners[TTx any](f *fixture[TTx], lapsed bool) {
	const rounds, attempts = 4, 16
	drivers := f.both()
	for round := range rounds {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", round)))
		before := store.Entry{ID: in.ID()}
		if lapsed {
			before = f.mustBegin(f.d, in, []byte("input"))
			f.age(lease + time.Minute)
		}
		var (
			wg     sync.WaitGroup
			start  = make(chan struct{})
			owners atomic.Int32
		)
		for n := range attempts {
			d := drivers[n%2]
			wg.Go(func() {
				<-start
				err := again(f.ctx, func() (err error) {
					var owned bool
					switch {
					case lapsed && n/2%2 == 0:
						_, err = d.Takeover(f.ctx, before.ID, lease)
						owned = err == nil
						if errors.Is(err, store.ErrLeaseLost) {
							err = nil
						}
					case !lapsed && n/2%4 == 0:
						_, owned, err = f.execute(d, in)
					default:
						_, owned, err = d.Begin(f.ctx, claim(in), []byte("input"), lease)
					}
					if owned {
						owners.Add(1)
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
		if n := owners.Load(); n != 1 {
			f.Errorf("%d of %d attempts own the intent, want 1", n, attempts)
		}
		if e := f.mustFind(f.d, in); lapsed {
			f.wantDriven(before, e)
		} else if executed := f.effects(effectOf(in)); (executed == 1) != (e.State == reprise.StateCompleted) || executed > 1 {
			f.Errorf("the intent is %s with %d effects", e.State, executed)
		}
		if f.Failed() {
			return
		}
	}
}

func beginCompleted[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	executed, staged := intent("k-1"), intent("k-2")
	f.mustExecute(f.d, executed)
	begun := f.mustBegin(f.d, staged, []byte("input"))
	done := completion(claim(staged))
	f.mustPhase(f.d, own(begun), store.PhaseWrites{Complete: &done})
	for range 2 {
		for _, in := range []reprise.Intent{executed, staged} {
			before := f.mustFind(f.d, in)
			e, owned, err := second.Begin(f.ctx, claim(in), []byte("again"), lease)
			if err != nil || owned {
				f.Fatalf("begin of a completed intent: owned %t, error %v", owned, err)
			}
			f.wantSame("the record for begin", before, e)
			f.wantSame("the record after begin", before, f.mustFind(f.d, in))
		}
		f.age(retention + time.Hour) // Once more as tombstones.
	}
}

func zombieWritesNothing[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	zombie := f.mustBegin(f.d, in, []byte("input"))
	f.age(lease + time.Minute)
	owner := f.mustTakeOver(second, in, zombie)

	refused := func(what string, err error) {
		f.Helper()
		if !errors.Is(err, store.ErrLeaseLost) {
			f.Errorf("%s by a former owner: %v, want ErrLeaseLost", what, err)
		}
	}
	refused("phase", f.d.Phase(f.ctx, own(zombie), 9*lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
		f.Errorf("the work of a former owner was called")
		done := completion(claim(in))
		return store.PhaseWrites{Step: plannedStep("ghost"), Complete: &done}, f.everything(ctx, tx, "ghost")
	}))
	refused("renew", f.d.Renew(f.ctx, own(zombie), 9*lease))
	refused("giving up", f.d.Renew(f.ctx, own(zombie), 0))
	refused("withdrawing", f.d.Withdraw(f.ctx, own(zombie)))
	f.wantSame("the run after its former owner tried to write", owner, f.mustFind(second, in))
	f.wantSteps(second, owner.ID)
	f.wantEffects("ghost", 0)
	f.wantFresh(second, receipt("ghost"), true)
	f.wantOnlyReal()

	done := completion(claim(in))
	f.mustPhase(second, own(owner), store.PhaseWrites{Complete: &done})
	completed := f.mustFind(second, in)
	refused("phase after completion", f.d.Phase(f.ctx, own(zombie), lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
		return store.PhaseWrites{Complete: &done}, f.effect(ctx, tx, "ghost")
	}))
	f.wantEffects("ghost", 0)
	f.wantSame("the completed run", completed, f.mustFind(second, in))
}

func lapsedIsTakenOver[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	e := f.mustBegin(f.d, in, []byte("input"))
	f.mustPhase(f.d, own(e), store.PhaseWrites{Step: plannedStep("charge")})
	for n := range 3 {
		f.age(lease - time.Minute)
		if _, owned, err := second.Begin(f.ctx, claim(in), nil, lease); err != nil || owned {
			f.Fatalf("begin a minute before the lease ends: owned %t, error %v", owned, err)
		}
		f.age(2 * time.Minute)
		if n%2 == 0 {
			e = f.mustTakeOver(second, in, e)
		} else {
			next, err := second.Takeover(f.ctx, e.ID, lease)
			if err != nil {
				f.Fatalf("takeover of a lapsed run: %v", err)
			}
			f.wantDriven(e, next)
			e = next
		}
		f.wantSame("the run that was taken over", e, f.mustFind(f.d, in))
		f.wantSteps(second, e.ID, *plannedStep("charge"))
	}
	absent := intent("absent")
	if _, err := second.Takeover(f.ctx, absent.ID(), lease); err == nil {
		f.Errorf("an intent without a run was taken over")
	}
	f.wantAbsent(f.d, absent)
}

func takeoverHasItsOwnToken[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	seen := map[store.Token]bool{}
	e := f.mustBegin(f.d, in, []byte("input"))
	for n := range 4 {
		if found := f.mustFind(f.d, in); found.Token != e.Token || seen[e.Token] {
			f.Errorf("after %d takeovers the run carries the token %x, want %x, which is new", n, found.Token, e.Token)
		}
		seen[e.Token] = true
		f.age(lease + time.Minute)
		if n%2 == 0 {
			next, err := second.Takeover(f.ctx, e.ID, lease)
			if err != nil {
				f.Fatalf("takeover of a lapsed run: %v", err)
			}
			e = next
		} else {
			e = f.mustTakeOver(second, in, e)
		}
	}
}

func renewKeeps[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	e := f.mustBegin(f.d, in, []byte("input"))
	taken := func(want bool, what string) store.Entry {
		f.Helper()
		e, owned, err := second.Begin(f.ctx, claim(in), nil, lease)
		if err != nil || owned != want {
			f.Fatalf("%s: taken over is %t, want %t, error %v", what, owned, want, err)
		}
		return e
	}
	f.age(lease / 2)
	if err := f.d.Renew(f.ctx, own(e), 3*lease); err != nil {
		f.Fatalf("renew: %v", err)
	}
	f.age(2 * lease)
	taken(false, "under a lease that was renewed")
	if err := f.d.Phase(f.ctx, own(e), 5*lease, func(context.Context, TTx) (store.PhaseWrites, error) {
		return store.PhaseWrites{}, nil
	}); err != nil {
		f.Fatalf("phase: %v", err)
	}
	f.age(4 * lease)
	taken(false, "under a lease that a phase has renewed")
	if err := f.d.Renew(f.ctx, own(e), 0); err != nil {
		f.Fatalf("giving up: %v", err)
	}
	f.wantLapsed(second, e.ID)
	next := taken(true, "after the run was given up")
	f.wantDriven(e, next)
	f.wantLapsed(f.d)
}

func otherContentNeverTakesOver[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	begun := f.mustBegin(f.d, in, []byte("input"))
	f.age(lease + time.Minute)
	before := f.mustFind(f.d, in)
	for _, d := range []store.Driver[TTx]{f.d, second} {
		e, owned, err := d.Begin(f.ctx, claim(other(in)), []byte("other input"), lease)
		if err != nil || owned {
			f.Fatalf("begin of a lapsed run with other content: owned %t, error %v", owned, err)
		}
		f.wantSame("the record for other content", before, e)
		f.wantSame("the run after other content", before, f.mustFind(d, in))
	}
	f.wantLapsed(f.d, begun.ID)
	f.mustTakeOver(second, in, begun)
}

func epochsDiffer[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	zombie := f.mustBegin(f.d, in, []byte("first"))
	f.age(lease + time.Minute)
	e := f.mustTakeOver(second, in, zombie)
	if err := second.Withdraw(f.ctx, own(e)); err != nil {
		f.Fatalf("withdraw: %v", err)
	}
	seen := map[store.Ownership]bool{own(zombie): true, own(e): true}
	for n := range 4 {
		e = f.mustBegin(second, in, []byte("later"))
		if seen[own(e)] {
			f.Errorf("epoch %d was given out before", e.Epoch)
		}
		seen[own(e)] = true
		err := f.d.Phase(f.ctx, own(zombie), lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
			return store.PhaseWrites{Step: plannedStep("ghost")}, f.effect(ctx, tx, "ghost")
		})
		if !errors.Is(err, store.ErrLeaseLost) {
			f.Errorf("a phase of the first owner in a later run: %v, want ErrLeaseLost", err)
		}
		if err := f.d.Withdraw(f.ctx, own(zombie)); !errors.Is(err, store.ErrLeaseLost) {
			f.Errorf("a withdrawal by the first owner of a later run: %v, want ErrLeaseLost", err)
		}
		f.wantSame("the later run", e, f.mustFind(f.d, in))
		f.wantSteps(f.d, e.ID)
		if n%2 == 0 {
			if err := second.Withdraw(f.ctx, own(e)); err != nil {
				f.Fatalf("withdraw: %v", err)
			}
			continue
		}
		done := completion(claim(in))
		f.mustPhase(second, own(e), store.PhaseWrites{Complete: &done})
		f.age(tombstone + time.Hour)
		f.purge(second)
	}
	f.wantEffects("ghost", 0)
}

func lapsedOwnerGoesOn[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	e := f.mustBegin(f.d, in, []byte("input"))
	for n := range 2 {
		f.age(lease + time.Minute)
		f.wantLapsed(second, e.ID)
		if n == 0 {
			if err := f.d.Renew(f.ctx, own(e), lease); err != nil {
				f.Fatalf("renewing a lapsed lease that nobody has taken: %v", err)
			}
		} else {
			f.mustPhase(f.d, own(e), store.PhaseWrites{Step: plannedStep("charge")})
		}
		f.wantLapsed(second)
		if _, owned, err := second.Begin(f.ctx, claim(in), nil, lease); err != nil || owned {
			f.Errorf("begin under the new lease: owned %t, error %v", owned, err)
		}
	}
}
