// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func resolveRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"L7_resolve_finds_what_was_committed",
			"Resolve finds the record with the token of the attempt that was committed, in this process and in another.",
			resolveFinds[TTx],
		},
		{
			"L7_resolve_is_certain_that_nothing_was_kept",
			"Resolve answers ErrNotFound for an intent that was never executed or whose attempt was rolled back.",
			resolveIsCertain[TTx],
		},
		{
			"L7_resolve_waits_behind_a_transaction_that_commits",
			"Resolve never says that nothing was kept of a transaction that commits after all: it waits for it, fails, or has made it unable to commit.",
			func(f *fixture[TTx]) { resolveWaits(f, nil) },
		},
		{
			"L7_resolve_waits_behind_a_transaction_that_rolls_back",
			"Resolve never decides while a transaction is running; once that is rolled back, it is certain that nothing was kept.",
			func(f *fixture[TTx]) { resolveWaits(f, errHandler) },
		},
	}
}

func resolveFinds[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	c := claim(in)
	want, _, err := f.executeAs(f.d, c, func(*store.Completion) {})
	if err != nil {
		f.Fatalf("execute: %v", err)
	}
	run := f.mustBegin(f.d, intent("k-2"), []byte("input"))
	for _, d := range f.both() {
		e, err := d.Resolve(f.ctx, in)
		if err != nil || e.Token != c.Token {
			f.Fatalf("resolve: token %x, error %v; want token %x", e.Token, err, c.Token)
		}
		f.wantSame("the resolved record", want, e)
		if e, err := d.Resolve(f.ctx, other(in)); err != nil || e.Intent != in {
			f.Errorf("resolving with other content: %+v, error %v; want the record, whoever wrote it", e.Intent, err)
		}
		if e, err := d.Resolve(f.ctx, run.Intent); err != nil || e.State != reprise.StateInProgress {
			f.Errorf("resolving a run in progress: state %q, error %v", e.State, err)
		}
	}
	f.age(retention + time.Hour)
	if e, err := f.d.Resolve(f.ctx, in); err != nil || e.State != reprise.StateTombstone || e.Token != c.Token {
		f.Errorf("resolving a tombstone: state %q, token %x, error %v", e.State, e.Token, err)
	}
}

func resolveIsCertain[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	for _, d := range f.both() {
		if e, err := d.Resolve(f.ctx, in); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("resolving an absent intent: state %q, error %v; want ErrNotFound", e.State, err)
		}
		_, _, err := d.Execute(f.ctx, claim(in), func(ctx context.Context, tx TTx) (store.Completion, error) {
			return store.Completion{}, errors.Join(errHandler, f.effect(ctx, tx, effectOf(in)))
		})
		if !errors.Is(err, errHandler) {
			f.Fatalf("the failing attempt: %v", err)
		}
		if e, err := d.Resolve(f.ctx, in); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("resolving after a rollback: state %q, error %v; want ErrNotFound", e.State, err)
		}
	}
	f.mustExecute(f.d, in)
}

func resolveWaits[TTx any](f *fixture[TTx], fail error) {
	for _, d := range f.both() {
		in := intent(reprise.NewKey())
		h := f.hold(f.d, in, fail)
		type answer struct {
			entry store.Entry
			err   error
		}
		resolved := make(chan answer, 1)
		go func() {
			e, err := d.Resolve(f.ctx, in)
			resolved <- answer{e, err}
		}()
		early, ended := false, false
		select {
		case a := <-resolved:
			early = true
			// A cluster that can't see another node's locks may end its transaction.
			ended = errors.Is(a.err, store.ErrNotFound)
			if a.err == nil {
				f.Errorf("resolve decided while the transaction was running: state %q", a.entry.State)
			}
		case <-time.After(grace):
		}
		err := h.release()
		if ended {
			if err == nil {
				f.Errorf("resolve said that nothing was kept of a transaction that was running, and it was committed")
			}
			f.wantAbsent(d, in)
			f.wantEffects(effectOf(in), 0)
			if fail != nil {
				f.resolveEnds(d)
			}
			continue
		}
		if !errors.Is(err, fail) {
			f.Fatalf("the held attempt ended with %v, want %v", err, fail)
		}
		if !early {
			if a := <-resolved; fail == nil && errors.Is(a.err, store.ErrNotFound) {
				f.Errorf("resolve found nothing of a transaction that was committed while it waited")
			} else if fail != nil && a.err == nil {
				f.Errorf("resolve found a record of a transaction that was rolled back")
			}
		}
		var e store.Entry
		err = again(f.ctx, func() (err error) { e, err = d.Resolve(f.ctx, in); return err })
		if fail == nil && (err != nil || e.State != reprise.StateCompleted) {
			f.Errorf("resolving after the commit: state %q, error %v", e.State, err)
		}
		if fail != nil && !errors.Is(err, store.ErrNotFound) {
			f.Errorf("resolving after the rollback: state %q, error %v; want ErrNotFound", e.State, err)
		}
	}
}

// resolveEnds fails unless a transaction of which Resolve says that nothing was
// kept, while it is running, has become unable to commit.
func (f *fixture[TTx]) resolveEnds(d store.Driver[TTx]) {
	f.Helper()
	in := intent(reprise.NewKey())
	h := f.hold(f.d, in, nil)
	_, err := d.Resolve(f.ctx, in)
	if end := h.release(); errors.Is(err, store.ErrNotFound) && end == nil {
		f.Errorf("resolve said that nothing was kept of a transaction that was running, and it was committed")
	}
}
