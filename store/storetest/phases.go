// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func phaseRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"S4_steps_keep_order_state_and_bytes",
			"Steps come back in the order they were made, byte for byte, in another process and after a restart; done replaces planned in its place.",
			stepsAreKept[TTx],
		},
		{
			"S4_done_step_is_never_written_again",
			"A phase that would write a step which is done fails as a whole: its business rows and its completion are not kept.",
			doneStepIsFinal[TTx],
		},
		{
			"S4_failed_phase_leaves_the_steps_alone",
			"A phase that fails neither adds a step nor changes one.",
			failedPhaseKeepsSteps[TTx],
		},
		{
			"S4_new_run_has_no_steps_of_an_old_one",
			"A run under a key that was forgotten starts without the steps of the earlier run.",
			newRunHasNoSteps[TTx],
		},
		{
			"S5_completed_is_final",
			"After a run has been completed its owner is refused too: no phase, renewal, withdrawal or takeover changes the record.",
			completedIsFinal[TTx],
		},
	}
}

// plannedStep returns a step as it is before its call.
func plannedStep(name string) *store.Step {
	return &store.Step{Name: name, Key: "derived-" + reprise.Key(name), State: store.StepPlanned, Request: []byte("req\x00\xff" + name)}
}

// mustPhase runs a phase that has no business rows.
func (f *fixture[TTx]) mustPhase(d store.Driver[TTx], o store.Ownership, w store.PhaseWrites) {
	f.Helper()
	err := d.Phase(f.ctx, o, lease, func(context.Context, TTx) (store.PhaseWrites, error) { return w, nil })
	if err != nil {
		f.Fatalf("phase: %v", err)
	}
}

// wantSteps fails unless the run has exactly these steps in this order.
func (f *fixture[TTx]) wantSteps(d store.Driver[TTx], id reprise.IntentID, want ...store.Step) {
	f.Helper()
	got, err := d.Steps(f.ctx, id)
	if err != nil {
		f.Fatalf("steps: %v", err)
	}
	if !slices.EqualFunc(got, want, sameStep) {
		f.Errorf("the %d steps are %s, want the %d steps %s", len(got), describe(got), len(want), describe(want))
	}
}

// describe shows steps in one line of bounded length.
func describe(steps []store.Step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "[%q key %q %s %.20q %s %.20q]", s.Name, s.Key, s.State, s.Request, s.Outcome, s.Response)
	}
	return b.String()
}

func sameStep(a, b store.Step) bool {
	return a.Name == b.Name && a.Key == b.Key && a.State == b.State && a.Outcome == b.Outcome &&
		bytes.Equal(a.Request, b.Request) && bytes.Equal(a.Response, b.Response)
}

// wantLapsed fails unless exactly these runs have lapsed.
func (f *fixture[TTx]) wantLapsed(d store.Driver[TTx], want ...reprise.IntentID) {
	f.Helper()
	for _, limit := range []int{1, 2, 3, 1000} {
		var got []reprise.IntentID
		var after reprise.IntentID
		for {
			page, err := d.Lapsed(f.ctx, after, limit)
			if err != nil {
				f.Fatalf("lapsed: %v", err)
			}
			if len(page) > limit {
				f.Fatalf("lapsed: a page of %d, the limit is %d", len(page), limit)
			}
			for _, e := range page {
				if e.State != reprise.StateInProgress || e.ID != e.Intent.ID() {
					f.Errorf("lapsed lists %q, which is %s", e.Intent.Key, e.State)
				}
				got = append(got, e.ID)
			}
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].ID
		}
		slices.SortFunc(want, func(a, b reprise.IntentID) int { return bytes.Compare(a[:], b[:]) })
		if !slices.Equal(got, want) {
			f.Errorf("by pages of %d the lapsed runs are %v, want %v", limit, got, want)
		}
	}
}

func doneStepIsFinal[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	e := f.mustBegin(f.d, in, []byte("input"))
	done := *plannedStep("reserve")
	done.State, done.Outcome, done.Response = store.StepDone, reprise.Succeeded, []byte("first")
	f.mustPhase(f.d, own(e), store.PhaseWrites{Step: &done})
	second, planned := done, *plannedStep("reserve")
	second.Response = []byte("second")
	for _, again := range []store.Step{second, planned, done} {
		c := completion(claim(in))
		err := f.d.Phase(f.ctx, own(e), lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
			return store.PhaseWrites{Step: &again, Complete: &c}, f.effect(ctx, tx, "again")
		})
		if err == nil {
			f.Errorf("a step that is done was written again as %s", describe([]store.Step{again}))
		}
		if n := f.effects("again"); n != 0 {
			f.Errorf("the refused phase left %d business rows", n)
		}
	}
	f.wantSteps(f.d, e.ID, done)
	if found := f.mustFind(f.d, in); found.State != reprise.StateInProgress {
		f.Errorf("the refused phase left the run %s", found.State)
	}
}

func lapsedLists[TTx any](f *fixture[TTx]) {
	var want []reprise.IntentID
	for n := range 9 {
		key := reprise.Key(fmt.Sprintf("k-%d", n))
		if n%3 == 0 {
			key = reprise.NewKey()
		}
		in := intent(key)
		e := f.mustBegin(f.d, in, []byte("input"))
		switch n % 4 {
		case 1:
			done := completion(claim(in))
			f.mustPhase(f.d, own(e), store.PhaseWrites{Complete: &done})
		case 2:
			if err := f.d.Renew(f.ctx, own(e), 9*lease); err != nil {
				f.Fatalf("renew: %v", err)
			}
		default:
			want = append(want, e.ID)
		}
	}
	f.mustExecute(f.d, intent("atomic"))
	f.wantLapsed(f.d)
	f.age(lease + time.Minute)
	for _, d := range f.both() {
		f.wantLapsed(d, want...)
	}
	page, err := f.d.Lapsed(f.ctx, reprise.IntentID{}, 1)
	if err != nil || len(page) != 1 || string(page[0].Input) != "input" {
		f.Fatalf("lapsed: %d runs, error %v; want one with its input", len(page), err)
	}
	if _, err := f.d.Takeover(f.ctx, page[0].ID, lease); err != nil {
		f.Fatalf("takeover of a lapsed run: %v", err)
	}
	f.wantLapsed(f.d, slices.DeleteFunc(want, func(id reprise.IntentID) bool { return id == page[0].ID })...)
}

func withdraw[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	e := f.mustBegin(f.d, in, []byte("input"))
	if err := f.d.Withdraw(f.ctx, own(e)); err != nil {
		f.Fatalf("withdraw: %v", err)
	}
	f.wantAbsent(second, in)
	if err := f.d.Withdraw(f.ctx, own(e)); !errors.Is(err, store.ErrLeaseLost) {
		f.Errorf("withdrawing twice: %v, want ErrLeaseLost", err)
	}
	e = f.mustBegin(second, other(in), []byte("anew"))
	if e.Drives != 1 || e.Intent != other(in) {
		f.Errorf("after a withdrawal the new run is of %+v in drive %d", e.Intent, e.Drives)
	}
	f.mustPhase(second, own(e), store.PhaseWrites{Step: plannedStep("charge")})
	if err := second.Withdraw(f.ctx, own(e)); err == nil {
		f.Errorf("a run with a step was withdrawn")
	}
	f.wantSteps(f.d, e.ID, *plannedStep("charge"))
	if now := f.mustFind(f.d, in); now.State != reprise.StateInProgress || now.Epoch != e.Epoch {
		f.Errorf("after a refused withdrawal the run is %s in epoch %d", now.State, now.Epoch)
	}
}

func stepsAreKept[TTx any](f *fixture[TTx]) {
	d, stop := f.open()
	in := intent("k-1")
	e := f.mustBegin(d, in, nil)
	other := f.mustBegin(d, intent("k-2"), nil)
	var want []store.Step
	for n := range 12 {
		s := *plannedStep(fmt.Sprintf("step %d é/\"'", (n*7)%12))
		switch n % 4 {
		case 1:
			s.Key, s.Request = "", nil // An atomic phase has neither.
			s.State, s.Outcome, s.Response = store.StepDone, reprise.Succeeded, []byte{}
		case 2:
			s.Request = bytes.Repeat([]byte{0, 0xff, '\n'}, 1<<16)
		}
		f.mustPhase(d, own(e), store.PhaseWrites{Step: &s})
		want = append(want, s)
	}
	f.wantSteps(f.d, e.ID, want...)
	for n, outcome := range []reprise.Outcome{reprise.Unknown, reprise.Succeeded, reprise.Rejected, reprise.NotProcessed} {
		s := &want[[]int{0, 3, 6, 8}[n]] // planned ones, in the midst of others
		s.State, s.Outcome, s.Response = store.StepDone, outcome, []byte("\x00res\xff\xfe"+outcome.String())
		f.mustPhase(d, own(e), store.PhaseWrites{Step: s})
		f.wantSteps(f.d, e.ID, want...)
	}
	stop()
	next, _ := f.open()
	f.wantSteps(next, e.ID, want...)
	f.wantSteps(next, other.ID)
}

func failedPhaseKeepsSteps[TTx any](f *fixture[TTx]) {
	e := f.mustBegin(f.d, intent("k-1"), nil)
	f.mustPhase(f.d, own(e), store.PhaseWrites{Step: plannedStep("charge")})
	for _, name := range []string{"charge", "ship"} {
		err := f.d.Phase(f.ctx, own(e), lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
			s := plannedStep(name)
			s.State, s.Outcome, s.Response = store.StepDone, reprise.Succeeded, []byte("paid")
			return store.PhaseWrites{Step: s}, errors.Join(errHandler, f.effect(ctx, tx, "ghost"))
		})
		if !errors.Is(err, errHandler) {
			f.Errorf("the failing phase: %v, want its own error", err)
		}
		f.wantSteps(f.d, e.ID, *plannedStep("charge"))
	}
	f.wantEffects("ghost", 0)
}

func newRunHasNoSteps[TTx any](f *fixture[TTx]) {
	for n, purge := range []bool{false, true} {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", n)))
		e := f.mustBegin(f.d, in, []byte("input"))
		done := completion(claim(in))
		f.mustPhase(f.d, own(e), store.PhaseWrites{Step: plannedStep("charge")})
		f.mustPhase(f.d, own(e), store.PhaseWrites{Step: plannedStep("ship"), Complete: &done})
		f.age(tombstone + time.Hour)
		if purge {
			f.purge(f.d)
		}
		e = f.mustBegin(f.d, in, []byte("anew"))
		f.wantSteps(f.d, e.ID)
		if e.Drives != 1 || string(e.Input) != "anew" {
			f.Errorf("the new run is in drive %d with input %q", e.Drives, e.Input)
		}
	}
}

func completedIsFinal[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	e := f.mustBegin(f.d, in, []byte("input"))
	first := completion(claim(in))
	f.mustPhase(f.d, own(e), store.PhaseWrites{Step: plannedStep("charge"), Complete: &first})
	before := f.mustFind(f.d, in)
	f.wantResult("the completed run", first.Result, before.Result)
	for n, d := range []store.Driver[TTx]{f.d, second} {
		err := d.Phase(f.ctx, own(e), lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
			second := completion(claim(in))
			return store.PhaseWrites{Step: plannedStep("ghost"), Complete: &second}, f.everything(ctx, tx, "ghost")
		})
		if err == nil {
			f.Errorf("a phase of a completed run was accepted")
		}
		for what, err := range map[string]error{
			"renew":     d.Renew(f.ctx, own(e), lease),
			"giving up": d.Renew(f.ctx, own(e), 0),
			"withdraw":  d.Withdraw(f.ctx, own(e)),
		} {
			if !errors.Is(err, store.ErrLeaseLost) {
				f.Errorf("%s of a completed run: %v, want ErrLeaseLost", what, err)
			}
		}
		if n == 1 {
			f.age(2 * lease)
			before = f.mustFind(f.d, in)
		}
		if _, err := d.Takeover(f.ctx, e.ID, lease); !errors.Is(err, store.ErrLeaseLost) {
			f.Errorf("takeover of a completed run: %v, want ErrLeaseLost", err)
		}
		f.wantSame("the completed run", before, f.mustFind(d, in))
		f.wantLapsed(d)
	}
	f.wantEffects("ghost", 0)
	f.wantOnlyReal()
}
