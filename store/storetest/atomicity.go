// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// mode is one of the three ways into a transaction. What L3 and L10 promise
// holds in each.
type mode[TTx any] struct {
	name  string
	start func(f *fixture[TTx], key string) attempt[TTx]
}

// attempt is one transaction that is about to run, and what it would leave.
type attempt[TTx any] struct {
	// run runs work in the transaction, with a record if the mode has one.
	run func(ctx context.Context, work func(ctx context.Context, tx TTx) error) error
	// wantKept and wantNothing look for the record.
	wantKept, wantNothing func()
}

func modes[TTx any]() []mode[TTx] {
	return []mode[TTx]{
		{"execute", startExecute[TTx]},
		{"phase", startPhase[TTx]},
		{"transact", startTransact[TTx]},
	}
}

func startExecute[TTx any](f *fixture[TTx], key string) attempt[TTx] {
	in := intent(reprise.Key("execute-" + key))
	return attempt[TTx]{
		run: func(ctx context.Context, work func(ctx context.Context, tx TTx) error) error {
			c := claim(in)
			_, executed, err := f.d.Execute(ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
				return completion(c), work(ctx, tx)
			})
			if executed != (err == nil) {
				f.Errorf("executed is %t beside error %v", executed, err)
			}
			return err
		},
		wantKept:    func() { f.Helper(); f.mustReplay(f.d, in) },
		wantNothing: func() { f.Helper(); f.wantAbsent(f.d, in) },
	}
}

func startPhase[TTx any](f *fixture[TTx], key string) attempt[TTx] {
	f.Helper()
	in := intent(reprise.Key("phase-" + key))
	c := claim(in)
	before := f.mustBegin(f.d, in, []byte("input"))
	return attempt[TTx]{
		run: func(ctx context.Context, work func(ctx context.Context, tx TTx) error) error {
			return f.d.Phase(ctx, own(before), lease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
				done := completion(c)
				return store.PhaseWrites{Step: plannedStep("charge"), Complete: &done}, work(ctx, tx)
			})
		},
		wantKept: func() {
			f.Helper()
			f.wantResult("the completed run", completion(c).Result, f.mustReplay(f.d, in).Result)
		},
		wantNothing: func() {
			f.Helper()
			if e := f.mustFind(f.d, in); e.State != reprise.StateInProgress || e.Epoch != before.Epoch {
				f.Errorf("the run is %s in epoch %d, want in progress in epoch %d", e.State, e.Epoch, before.Epoch)
			}
			f.wantSteps(f.d, before.ID)
		},
	}
}

func startTransact[TTx any](f *fixture[TTx], _ string) attempt[TTx] {
	return attempt[TTx]{
		run: func(ctx context.Context, work func(ctx context.Context, tx TTx) error) error {
			return f.d.Transact(ctx, work)
		},
		wantKept:    func() {},
		wantNothing: func() {},
	}
}

// failure is one way in which a handler ends its transaction without success.
type failure[TTx any] struct {
	name string
	// do fails inside the transaction. end ends the context that it runs under.
	do func(f *fixture[TTx], ctx context.Context, tx TTx, end func()) error
	// want is the error that the caller must get; a panic is compared by ==.
	want  error
	panic any
	exits bool // the handler ends its goroutine
}

var errHandler = errors.New("storetest: the handler failed")

func failures[TTx any]() []failure[TTx] {
	return []failure[TTx]{
		{
			name: "an_error",
			do:   func(*fixture[TTx], context.Context, TTx, func()) error { return errHandler },
			want: errHandler,
		},
		{
			name:  "a_panic",
			do:    func(*fixture[TTx], context.Context, TTx, func()) error { panic(errHandler) },
			panic: errHandler,
		},
		{
			name:  "an_exit_of_its_goroutine",
			do:    func(*fixture[TTx], context.Context, TTx, func()) error { runtime.Goexit(); return nil },
			exits: true,
		},
		{
			name: "an_ended_context",
			do: func(_ *fixture[TTx], ctx context.Context, _ TTx, end func()) error {
				end()
				<-ctx.Done()
				return ctx.Err()
			},
			want: context.Canceled,
		},
	}
}

func atomicityRules[TTx any]() []rule[TTx] {
	all := []rule[TTx]{{
		"L3_record_and_effects_commit_together",
		"Record, business rows, messages and receipt of one attempt are all there after it has succeeded.",
		successKeepsAll[TTx],
	}, {
		"L3_effect_and_record_become_visible_together",
		"Record, business rows and messages commit in one transaction: nobody ever sees one of them without the others.",
		visibleTogether[TTx],
	}}
	for _, m := range modes[TTx]() {
		for _, how := range failures[TTx]() {
			all = append(all, rule[TTx]{
				"L3_" + m.name + "_keeps_nothing_after_" + how.name,
				"After " + strings.ReplaceAll(how.name, "_", " ") + " no record, business row, message or receipt is kept, and the caller gets what the handler raised.",
				func(f *fixture[TTx]) { keepsNothing(f, m, how) },
			})
		}
	}
	return all
}

// everything writes one of all that a transaction can hold.
func (f *fixture[TTx]) everything(ctx context.Context, tx TTx, name string) error {
	if err := f.effect(ctx, tx, name); err != nil {
		return fmt.Errorf("effect: %w", err)
	}
	if err := f.d.Enqueue(ctx, tx, message(name, "subject")); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	fresh, _, err := f.d.Accept(ctx, tx, receipt(name))
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if !fresh {
		return errors.New("the receipt was there before")
	}
	return nil
}

func successKeepsAll[TTx any](f *fixture[TTx]) {
	var ids []string
	for _, m := range modes[TTx]() {
		at := m.start(f, "all")
		err := at.run(f.ctx, func(ctx context.Context, tx TTx) error { return f.everything(ctx, tx, m.name) })
		if err != nil {
			f.Fatalf("%s: %v", m.name, err)
		}
		at.wantKept()
		f.wantEffects(m.name, 1)
		f.wantFresh(f.d, receipt(m.name), false)
		ids = append(ids, m.name)
	}
	f.relay(f.d, "relay").wantDelivered(ids...)
}

func keepsNothing[TTx any](f *fixture[TTx], m mode[TTx], how failure[TTx]) {
	at := m.start(f, "fails")
	ctx, end := context.WithCancel(f.ctx)
	defer end()
	recovered, exited, err := callApart(func() error {
		return at.run(ctx, func(ctx context.Context, tx TTx) error {
			if err := f.everything(ctx, tx, "ghost"); err != nil {
				return err
			}
			return how.do(f, ctx, tx, end)
		})
	})
	if exited != how.exits {
		f.Errorf("the goroutine of the handler has ended: %t, want %t", exited, how.exits)
	}
	if recovered != how.panic {
		f.Errorf("the caller recovered %v, want %v", recovered, how.panic)
	}
	if how.panic == nil && !how.exits && !errors.Is(err, how.want) {
		f.Errorf("the caller got error %v, want %v", err, how.want)
	}
	f.wantNothingOf("ghost", at)
	if err := at.run(f.ctx, func(ctx context.Context, tx TTx) error { return f.everything(ctx, tx, "real") }); err != nil {
		f.Fatalf("the next attempt: %v; want it to run at once (L12)", err)
	}
	at.wantKept()
	f.relay(f.d, "relay").wantDelivered("real")
}

// wantNothingOf fails if anything of a failed attempt has been kept but for its
// messages, which wantDelivered looks for.
func (f *fixture[TTx]) wantNothingOf(name string, at attempt[TTx]) {
	f.Helper()
	at.wantNothing()
	f.wantEffects(name, 0)
	f.wantFresh(f.d, receipt(name), true)
}

// visibleTogether watches the commits of one driver from outside. A driver that
// uses two transactions leaves a moment between them, in which a crash would
// lose the second one.
func visibleTogether[TTx any](f *fixture[TTx]) {
	const executions = 60
	key := func(n int) reprise.Intent { return intent(reprise.Key(fmt.Sprintf("k-%d", n))) }
	watcher, _ := f.open()
	var writer sync.WaitGroup
	stopped := make(chan struct{})
	writer.Go(func() {
		defer close(stopped)
		for n := range executions {
			in := key(n)
			err := again(f.ctx, func() error {
				_, _, err := f.d.Execute(f.ctx, claim(in), func(ctx context.Context, tx TTx) (store.Completion, error) {
					return completion(claim(in)), f.everything(ctx, tx, effectOf(in))
				})
				return err
			})
			if err != nil {
				f.Errorf("execution %d: %v", n, err)
				return
			}
		}
	})
	defer writer.Wait()
	seen := 0
	for seen < executions && !f.Failed() && f.ctx.Err() == nil {
		in := key(seen)
		if b, err := watcher.Relay().Backlog(f.ctx); err == nil && b.Waiting > seen && f.effects(effectOf(in)) == 0 {
			f.Errorf("execution %d: its message was visible before its business row", seen)
		}
		_, err := watcher.Find(f.ctx, in)
		record := err == nil
		effect := f.effects(effectOf(in)) == 1
		if record && !effect {
			f.Errorf("execution %d: its record was visible before its business row", seen)
		}
		if effect {
			if _, err := watcher.Find(f.ctx, in); err != nil {
				f.Errorf("execution %d: its business row was visible before its record: %v", seen, err)
			}
			if b, err := watcher.Relay().Backlog(f.ctx); err != nil || b.Waiting < seen+1 {
				f.Errorf("execution %d: its business row was visible before its message: %d waiting, error %v", seen, b.Waiting, err)
			}
			seen++
		}
	}
	select {
	case <-stopped:
	case <-time.After(f.patience):
		f.Errorf("the executions did not end")
	}
}
