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

func executeRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"L1_absent_intent_executes_once",
			"An absent intent is claimed and executed; once it is completed its record answers, and work has no effect.",
			absentExecutes[TTx],
		},
		{
			"L1_repeated_work_counts_for_nothing",
			"Once there is a record, what work does, returns or raises changes nothing: the record answers.",
			repeatedWork[TTx],
		},
		{
			"L1_claim_is_announced_before_the_effect",
			"An attempt is told that the intent is its own once in each run of its work, at the latest when its first statement is answered.",
			claimAnnounced[TTx],
		},
		{
			"L1_number_of_the_attempt_decides_nothing",
			"The client's count of its attempts may save work but never decides whether an intent is executed.",
			numberDecidesNothing[TTx],
		},
		{
			"L1_concurrent_attempts_on_one_driver_commit_once",
			"Of concurrent attempts at one intent at most one commits; the others get its record, ErrBusy or ErrConflict.",
			func(f *fixture[TTx]) { concurrentAttempts(f, []store.Driver[TTx]{f.d}, false) },
		},
		{
			"L1_concurrent_attempts_on_two_drivers_commit_once",
			"Of concurrent attempts in two processes at one intent at most one commits: no lock in memory decides.",
			func(f *fixture[TTx]) { concurrentAttempts(f, f.both(), false) },
		},
		{
			"L6_concurrent_attempts_with_two_contents_commit_once",
			"Of concurrent attempts under one key with two contents one commits; all others get its record, which says what it asked for, or are told before it that other content is in progress.",
			func(f *fixture[TTx]) { concurrentAttempts(f, f.both(), true) },
		},
		{
			"L1_different_intents_do_not_exclude_each_other",
			"Different intents that are executed at once all commit, and each has a record of its own.",
			differentIntents[TTx],
		},
		{
			"L11_wait_is_bounded_by_the_context",
			"The context bounds the wait for a transaction: an attempt behind a slow one gives up, and nothing of it is kept.",
			boundedWait[TTx],
		},
		{
			"L12_next_attempt_runs_at_once",
			"An attempt that failed leaves no claim behind: the next one executes at once, in this process and in another.",
			nextAttemptRuns[TTx],
		},
		{
			"L12_failure_does_not_touch_its_neighbours",
			"An attempt that fails takes nothing with it: transactions that run beside it commit what they did, and only that.",
			neighboursSurvive[TTx],
		},
		{
			"L13_cancelled_after_its_work_is_still_committed",
			"A caller that is gone once its work has finished does not undo it: COMMIT runs under no cancellable context, and says so.",
			cancelledAfterWork[TTx],
		},
		{
			"L13_cancellation_is_answered_truthfully",
			"Whenever a context is cancelled, success means that everything was kept, and an error that nothing was.",
			cancelledAnyTime[TTx],
		},
	}
}

func absentExecutes[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	f.wantAbsent(f.d, in)
	c := claim(in)
	first, executed, err := f.executeAs(f.d, c, func(*store.Completion) {})
	if err != nil || !executed {
		f.Fatalf("the absent intent: executed %t, error %v", executed, err)
	}
	if first.State != reprise.StateCompleted || first.Token != c.Token || first.ID != in.ID() || first.Intent != in {
		f.Errorf("the new record is %s of %+v with id %s and token %x; want completed, %+v, %s, %x",
			first.State, first.Intent, first.ID, first.Token, in, in.ID(), c.Token)
	}
	f.wantResult("the new record", completion(c).Result, first.Result)
	other, _ := f.open()
	for range 3 {
		f.wantSame("a repeat", first, f.mustReplay(f.d, in))
		f.wantSame("a repeat in another process", first, f.mustReplay(other, in))
	}
	f.wantSame("the record", first, f.mustFind(other, in))
	f.wantEffects(effectOf(in), 1)
}

// repeatedWork repeats an intent whose work does without the store, hides what it
// was told, or dies of it.
func repeatedWork[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	first := f.mustExecute(f.d, in)
	for name, work := range map[string]func(ctx context.Context, tx TTx) error{
		"succeeds without a statement": func(context.Context, TTx) error { return nil },
		"fails without a statement":    func(context.Context, TTx) error { return errHandler },
		"panics without a statement":   func(context.Context, TTx) error { panic(errHandler) },
		"fails":                        func(ctx context.Context, tx TTx) error { return f.repeated(ctx, tx, in) },
		"hides its failure":            func(ctx context.Context, tx TTx) error { _ = f.repeated(ctx, tx, in); return nil },
		"panics":                       func(ctx context.Context, tx TTx) error { panic(f.repeated(ctx, tx, in)) },
		"goes on after its failure": func(ctx context.Context, tx TTx) error {
			_ = f.repeated(ctx, tx, in)
			_ = f.d.Enqueue(ctx, tx, message("ghost", "subject"))
			return f.repeated(ctx, tx, in)
		},
	} {
		var e store.Entry
		var executed bool
		recovered, err := call(func() (err error) {
			c := claim(in)
			e, executed, err = f.d.Execute(f.ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
				return completion(c), work(ctx, tx)
			})
			return err
		})
		if err != nil || executed || recovered != nil {
			f.Fatalf("a repeat whose work %s: executed %t, error %v, panic %v; want the record", name, executed, err, recovered)
		}
		f.wantSame("a repeat whose work "+name, first, e)
	}
	f.wantEffects(effectOf(in), 1)
	f.wantOnlyReal()
}

func claimAnnounced[TTx any](f *fixture[TTx]) {
	for _, fails := range []error{nil, errHandler} {
		in := intent(reprise.Key(fmt.Sprintf("k-%v", fails == nil)))
		var runs, held int
		_, _, err := f.d.Execute(f.ctx, store.Claim{Intent: in, Token: store.NewToken(), Number: 1, Held: func() { held++ }},
			func(ctx context.Context, tx TTx) (store.Completion, error) {
				runs++
				err := f.effect(ctx, tx, effectOf(in))
				if held != runs {
					f.Errorf("the first statement was answered in run %d, and the claim was announced %d times", runs, held)
				}
				return completion(claim(in)), errors.Join(err, fails)
			})
		if !errors.Is(err, fails) {
			f.Fatalf("%v, want %v", err, fails)
		}
		if held != runs {
			f.Errorf("the claim was announced %d times in %d runs", held, runs)
		}
	}
}

func numberDecidesNothing[TTx any](f *fixture[TTx]) {
	numbers := []int{0, 1, 2, 1000}
	for _, first := range numbers {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", first)))
		for n, number := range append([]int{first}, numbers...) {
			c := claim(in)
			c.Number = number
			_, executed, err := f.executeAs(f.d, c, func(*store.Completion) {})
			if err != nil || executed != (n == 0) {
				f.Errorf("request %d of an intent, which says that it is attempt %d: executed %t, error %v", n+1, number, executed, err)
			}
		}
		f.wantEffects(effectOf(in), 1)
	}
}

// concurrentAttempts starts many attempts at one intent at the same moment.
func concurrentAttempts[TTx any](f *fixture[TTx], drivers []store.Driver[TTx], twoContents bool) {
	const rounds, attempts = 5, 16
	for round := range rounds {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", round)))
		var (
			wg       sync.WaitGroup
			start    = make(chan struct{})
			executed atomic.Int32
			entries  [attempts]store.Entry
		)
		for n := range attempts {
			mine, d := in, drivers[n%len(drivers)]
			if twoContents && n/len(drivers)%2 == 1 {
				mine = other(in)
			}
			wg.Go(func() {
				<-start
				err := again(f.ctx, func() (err error) {
					var ran bool
					entries[n], ran, err = d.Execute(f.ctx, claim(mine), func(ctx context.Context, tx TTx) (store.Completion, error) {
						return completion(claim(mine)), f.effect(ctx, tx, effectOf(mine))
					})
					if ran {
						executed.Add(1)
					}
					if e := entries[n]; err == nil && !ran && twoContents && inFlight(mine, e) {
						return store.ErrBusy // The truth of that moment; the record comes later.
					}
					return err
				})
				if err != nil {
					f.Errorf("attempt %d: %v; want the record, ErrBusy or ErrConflict", n, err)
				}
			})
		}
		close(start)
		wg.Wait()
		if n := executed.Load(); n != 1 {
			f.Errorf("%d of %d attempts say that they executed, want 1", n, attempts)
		}
		f.wantEffects(effectOf(in), 1)
		final := f.mustFind(f.d, in)
		for _, e := range entries {
			f.wantSame("the answer of an attempt", final, e)
		}
		if f.Failed() {
			return
		}
	}
}

// inFlight reports whether an attempt was told that another one, with other
// content, is executing its intent.
func inFlight(asked reprise.Intent, e store.Entry) bool {
	return e.ID == asked.ID() && e.State == reprise.StateInProgress && e.Intent.Fingerprint != asked.Fingerprint
}

func differentIntents[TTx any](f *fixture[TTx]) {
	const attempts = 24
	drivers := f.both()
	var wg sync.WaitGroup
	start := make(chan struct{})
	key := func(n int) reprise.Intent { return intent(reprise.Key(fmt.Sprintf("k-%d", n))) }
	for n := range attempts {
		wg.Go(func() {
			<-start
			err := again(f.ctx, func() error {
				_, executed, err := f.execute(drivers[n%2], key(n))
				if err == nil && !executed {
					err = errors.New("was answered from the record of another intent")
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
	for n := range attempts {
		f.wantEffects(effectOf(key(n)), 1)
		f.mustReplay(drivers[(n+1)%2], key(n))
	}
}

func boundedWait[TTx any](f *fixture[TTx]) {
	drivers := f.both()
	slow := intent("slow")
	h := f.hold(f.d, slow, nil)
	overtaken := false
	for n, in := range []reprise.Intent{slow, slow, intent("same-process"), intent("other-process")} {
		ctx, cancel := context.WithTimeout(f.ctx, grace)
		answered := make(chan error, 1)
		var executed bool
		go func() {
			var err error
			_, executed, err = drivers[n%2].Execute(ctx, claim(in), func(ctx context.Context, tx TTx) (store.Completion, error) {
				return completion(claim(in)), f.effect(ctx, tx, "late-"+string(in.Key))
			})
			answered <- err
		}()
		select {
		case err := <-answered:
			// In a cluster of equals the first to commit wins, and the slow one learns of
			// it at its own COMMIT.
			switch {
			case in == slow && executed && !overtaken:
				overtaken = true
			case err == nil && in == slow && !overtaken:
				f.Errorf("an attempt beside the one that executes was answered before there was an answer")
			case err != nil:
				f.wantEffects("late-"+string(in.Key), 0)
			}
		case <-time.After(f.patience / 10):
			f.Errorf("an attempt at %q still waits long after its context has ended", in.Key)
		}
		cancel()
	}
	err := h.release()
	if overtaken != errors.Is(err, store.ErrConflict) || !overtaken && err != nil {
		f.Errorf("the slow attempt, overtaken %t: %v", overtaken, err)
	}
	slowly, lately := 1, 0
	if overtaken {
		slowly, lately = 0, 1
	}
	f.wantEffects(effectOf(slow), slowly)
	f.mustReplay(drivers[1], slow)
	f.wantEffects("late-slow", lately)
}

func nextAttemptRuns[TTx any](f *fixture[TTx]) {
	other, _ := f.open()
	for n, next := range []store.Driver[TTx]{f.d, other} {
		in := intent(reprise.Key(fmt.Sprintf("k-%d", n)))
		for range 3 {
			_, executed, err := f.d.Execute(f.ctx, claim(in), func(ctx context.Context, tx TTx) (store.Completion, error) {
				return store.Completion{}, errors.Join(errHandler, f.effect(ctx, tx, effectOf(in)))
			})
			if executed || !errors.Is(err, errHandler) {
				f.Fatalf("the failing attempt: executed %t, error %v; want its own error", executed, err)
			}
		}
		f.mustExecute(next, in)
		f.wantEffects(effectOf(in), 1)
	}
}

func neighboursSurvive[TTx any](f *fixture[TTx]) {
	const rounds, attempts = 4, 24
	kinds := []func(ctx context.Context, tx TTx) error{
		func(context.Context, TTx) error { return nil },
		func(context.Context, TTx) error { return errHandler },
		func(context.Context, TTx) error { panic(errHandler) },
		func(ctx context.Context, tx TTx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return f.effect(ctx, tx, "ghost")
		},
	}
	for _, bad := range badStatements {
		kinds = append(kinds, func(ctx context.Context, tx TTx) error { return f.plain.Exec(ctx, tx, bad) })
	}
	// Every other one succeeds.
	kind := func(n int) int { return (n % 2) * (1 + n/2%(len(kinds)-1)) }
	for round := range rounds {
		var wg sync.WaitGroup
		start := make(chan struct{})
		key := func(n int) reprise.Intent { return intent(reprise.Key(fmt.Sprintf("k-%d-%d", round, n))) }
		for n := range attempts {
			in := key(n)
			wg.Go(func() {
				<-start
				recovered, err := call(func() error {
					return again(f.ctx, func() error {
						c := claim(in)
						_, _, err := f.d.Execute(f.ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
							err := f.effect(ctx, tx, effectOf(in))
							return completion(c), errors.Join(err, kinds[kind(n)](ctx, tx))
						})
						return err
					})
				})
				if failed := err != nil || recovered != nil; failed != (kind(n) != 0) {
					f.Errorf("attempt %d of kind %d: error %v, panic %v", n, kind(n), err, recovered)
				}
			})
		}
		close(start)
		wg.Wait()
		for n := range attempts {
			if kind(n) == 0 {
				f.wantEffects(effectOf(key(n)), 1)
				f.mustReplay(f.d, key(n))
			} else {
				f.wantEffects(effectOf(key(n)), 0)
				f.wantAbsent(f.d, key(n))
			}
		}
		f.wantEffects("ghost", 0)
	}
}

// cancelledAfterWork cancels an attempt, once its work has returned, from inside
// the work of transactions that stand in line behind it and may share its COMMIT.
func cancelledAfterWork[TTx any](f *fixture[TTx]) {
	const followers = 4
	for _, m := range modes[TTx]() {
		at := m.start(f, "cancelled")
		ctx, cancel := context.WithCancel(f.ctx)
		ahead := f.hold(f.d, intent(reprise.NewKey()), nil)
		var ran atomic.Bool
		first := make(chan error, 1)
		go func() {
			first <- at.run(ctx, func(ctx context.Context, tx TTx) error {
				defer ran.Store(true)
				return f.effect(ctx, tx, m.name)
			})
		}()
		// Give each time to stand in line behind the one that is held. Where they
		// come in another order nothing is cancelled too early, and nothing fails.
		time.Sleep(grace / 5)
		var behind sync.WaitGroup
		for range followers {
			behind.Go(func() {
				err := again(f.ctx, func() error {
					return f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
						if ran.Load() {
							cancel()
						}
						return f.effect(ctx, tx, "behind-"+m.name)
					})
				})
				if err != nil {
					f.Errorf("a transaction behind it: %v", err)
				}
			})
		}
		time.Sleep(grace / 5)
		if err := ahead.release(); err != nil {
			f.Errorf("the transaction ahead of it: %v", err)
		}
		if err := <-first; err != nil {
			f.Errorf("%s: %v; want the commit to be reported", m.name, err)
		}
		behind.Wait()
		cancel()
		f.wantEffects(m.name, 1)
		f.wantEffects("behind-"+m.name, followers)
		at.wantKept()
	}
}

func cancelledAnyTime[TTx any](f *fixture[TTx]) {
	for n := range 90 {
		m := modes[TTx]()[n%3]
		name := fmt.Sprintf("cancelled-%d", n)
		at := m.start(f, name)
		ctx, cancel := context.WithCancel(f.ctx)
		err := at.run(ctx, func(ctx context.Context, tx TTx) error {
			if n < 6 {
				cancel()
			} else {
				time.AfterFunc(time.Duration(n)*10*time.Microsecond, cancel)
			}
			return f.effect(ctx, tx, name)
		})
		cancel()
		if err == nil {
			f.wantEffects(name, 1)
			at.wantKept()
		} else {
			f.wantEffects(name, 0)
			at.wantNothing()
		}
		if f.Failed() {
			f.Fatalf("cancelled in run %d, %s answered with error %v", n, m.name, err)
		}
	}
}
