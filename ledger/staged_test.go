// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
)

const lease = 30 * time.Second

// TestStagedFaults lets every commit of a run meet every fault, in a run that
// ends well and in one that is declined, and then goes on in another process, by
// the client's own retry or by recovery. Each time there is one effect of each
// kind, whatever the first attempt was told.
func TestStagedFaults(t *testing.T) {
	t.Parallel()
	const commits = 5 // claim, reserve, plan, evidence, finish
	for name, f := range map[string]fault{
		"conflict":            conflict,
		"unanswered and kept": lostKept, "unanswered and not kept": lostDropped,
		"killed after": cutAfter, "killed before": cutBefore,
	} {
		for _, decline := range []bool{false, true} {
			for _, recovery := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, decline=%v, recovery=%v", name, decline, recovery), func(t *testing.T) {
					t.Parallel()
					hits := 0
					for at := 1; ; at++ {
						hit := false
						synctest.Test(t, func(t *testing.T) { hit = runWithFault(t, at, f, decline, recovery) })
						if !hit {
							break
						}
						hits++
					}
					if hits != commits {
						t.Errorf("the fault met %d commits, want each of %d", hits, commits)
					}
				})
			}
		}
	}
}

// runWithFault reports whether the fault happened.
func runWithFault(t *testing.T, at int, f fault, decline, recovery bool) bool {
	db, psp := newMemory(), newProvider()
	psp.decline = decline
	var told []string
	seen := func(err error) {
		if reprise.OutcomeOf(err) == reprise.Rejected {
			told = append(told, err.Error())
		}
	}
	in := payment("k", 1)
	first := &process{db: db, at: at, fault: f}
	_, s1 := start(t, first, pay(psp, seen), nil)
	a1, err1 := s1.Do(t.Context(), in, ledger.Options{Retention: time.Hour, Tombstone: 2 * time.Hour}, []byte("10 EUR"))
	if !first.hit {
		return false
	}
	if o := reprise.OutcomeOf(err1); o == reprise.Rejected || o == reprise.NotProcessed && len(db.entries) > 0 {
		t.Errorf("commit %d: the first attempt was told %v while its run is on record", at, err1)
	}

	if cut := f == cutBefore || f == cutAfter; !cut && (err1 != nil || a1.Replayed) {
		t.Errorf("commit %d: got %+v, %v; the attempt can find out by itself and go on", at, a1, err1)
	}

	second, s2 := start(t, &process{db: db}, pay(psp, seen), nil)
	if recovery {
		time.Sleep(lease)
		if report, err := second.Recover(t.Context()); err != nil || report.Found != report.Completed {
			t.Errorf("commit %d: recovery did %+v, %v", at, report, err)
		}
	}
	a2, took := persist(t, s2, in, "10 EUR")
	limit := 2 * time.Second
	if f == cutBefore || f == cutAfter {
		limit += lease // Nobody could give the lease up.
	}
	if took > limit {
		t.Errorf("commit %d: the key was usable again after %v", at, took)
	}

	status, rows, charges := 201, []string{"reserved", "paid"}, 1
	if decline {
		status, rows, charges = 402, []string{"reserved", "declined"}, 0
	}
	if a2.Result.Status != status || !slices.Equal(db.rows, rows) {
		t.Errorf("commit %d: ended with %d and the rows %v, want %d and %v", at, a2.Result.Status, db.rows, status, rows)
	}
	if err1 == nil && string(a1.Result.Body) != string(a2.Result.Body) {
		t.Errorf("commit %d: L4: answered %q, then %q", at, a1.Result.Body, a2.Result.Body)
	}
	if told = slices.Compact(told); decline && len(told) != 1 {
		t.Errorf("commit %d: the handler was told different decisions: %q", at, told)
	}
	psp.check(t, in, charges)
	if e := db.entries[in.ID()]; e.Drives > 1 && e.ExpiresAt.Sub(e.CompletedAt) != time.Hour {
		t.Errorf("commit %d: the result is kept for %v; the client was promised an hour", at, e.ExpiresAt.Sub(e.CompletedAt))
	}
	return true
}

func TestStagedProviderFaults(t *testing.T) {
	t.Parallel()
	in := payment("k", 1)
	for name, fail := range map[string]func(psp *provider, p *process){
		"killed before the call arrives": func(psp *provider, p *process) {
			psp.before = func() error { p.cutOff(); return errCut }
		},
		"killed before the answer arrives": func(psp *provider, p *process) {
			psp.after = func() error { p.cutOff(); return errCut }
		},
		"the answer is lost": func(psp *provider, _ *process) { psp.after = func() error { return errors.New("connection reset") } },
		"the provider can't be reached": func(psp *provider, _ *process) {
			psp.before = func() error { return &reprise.Error{Code: "refused", Outcome: reprise.NotProcessed} }
		},
		"the answer is unknown": func(psp *provider, _ *process) {
			psp.after = func() error { return &reprise.Error{Code: reprise.CodeOutcomeUnknown} }
		},
		"the answer contradicts itself": func(psp *provider, _ *process) {
			psp.after = func() error { return &reprise.Error{Code: "ok", Outcome: reprise.Succeeded} }
		},
	} {
		t.Run("S7: "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, psp := newMemory(), newProvider()
				p := &process{db: db}
				fail(psp, p)
				_, s1 := start(t, p, pay(psp, nil), nil)
				_, err := s1.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
				if !errors.Is(err, reprise.ErrOutcomeUnknown) || reprise.OutcomeOf(err) != reprise.Unknown {
					t.Fatalf("got %v, want outcome-unknown", err)
				}
				if e := db.entries[in.ID()]; e.State != reprise.StateInProgress {
					t.Errorf("the run is %s, want in progress", e.State)
				}
				psp.before, psp.after = nil, nil
				_, s2 := start(t, &process{db: db}, pay(psp, nil), nil)
				a, _ := persist(t, s2, in, "10 EUR")
				if a.Result.Status != 201 || !slices.Equal(db.rows, []string{"reserved", "paid"}) {
					t.Errorf("ended with %d and %v", a.Result.Status, db.rows)
				}
				psp.check(t, in, 1)
			})
		})
	}
}

func TestStagedDo(t *testing.T) {
	t.Parallel()
	in := payment("k", 1)

	t.Run("S2: a zombie writes nothing after it was taken over", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			zombie := &process{db: db}
			thaw := make(chan struct{})
			psp.after = func() error {
				psp.after = nil
				zombie.freeze(thaw)
				<-thaw
				return nil
			}
			_, s1 := start(t, zombie, pay(psp, nil), nil)
			type answer struct {
				a   ledger.Answer
				err error
			}
			answered := make(chan answer, 1)
			go func() {
				a, err := s1.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
				answered <- answer{a, err}
			}()
			synctest.Wait()
			before := zombie.commits

			_, s2 := start(t, &process{db: db}, pay(psp, nil), nil)
			a2, took := persist(t, s2, in, "10 EUR")
			if took < lease-2*time.Second {
				t.Errorf("taken over after %v, before the lease had lapsed", took)
			}
			close(thaw)
			r := <-answered
			if r.err != nil || !r.a.Replayed || string(r.a.Result.Body) != string(a2.Result.Body) {
				t.Errorf("the zombie's client got %+v, %v; want its successor's result", r.a, r.err)
			}
			if zombie.commits != before {
				t.Errorf("the zombie made %d commits after it was taken over", zombie.commits-before)
			}
			if !slices.Equal(db.rows, []string{"reserved", "paid"}) {
				t.Errorf("the rows are %v", db.rows)
			}
			psp.check(t, in, 1)
		})
	})

	t.Run("a call longer than its lease is not taken over while its process lives", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error { time.Sleep(5 * lease); return nil }
			c := &ledger.Config{WorkTimeout: time.Hour, Lease: lease}
			l, s := start(t, &process{db: db}, pay(psp, nil), c)
			done := make(chan error, 1)
			go func() {
				_, err := s.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
				done <- err
			}()
			for range 20 {
				time.Sleep(lease / 5)
				if report, err := l.Recover(t.Context()); err != nil || report.Found != 0 {
					t.Fatalf("recovery found %+v, %v", report, err)
				}
			}
			if err := <-done; err != nil || db.entries[in.ID()].Drives != 1 || psp.sends != 1 {
				t.Errorf("got %v after %d drives and %d sends", err, db.entries[in.ID()].Drives, psp.sends)
			}
		})
	})

	t.Run("a drive that can't renew its lease is stopped when the lease is over", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			p := &process{db: db}
			var cause error
			var after time.Duration
			_, s := start(t, p, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				p.cutOff() // Nothing can be reached from here on.
				from := time.Now()
				<-ctx.Done()
				after, cause = time.Since(from), context.Cause(ctx)
				return run.Tx(ctx, "reserve", nil)
			}, &ledger.Config{WorkTimeout: time.Hour, Lease: lease})
			_, err := s.Do(t.Context(), in, ledger.Options{}, nil)
			if !errors.Is(cause, reprise.ErrLeaseLost) || after != lease {
				t.Errorf("stopped by %v after %v", cause, after)
			}
			if !errors.Is(err, reprise.ErrInProgress) {
				t.Errorf("got %v", err)
			}
		})
	})

	t.Run("L13: a client that leaves doesn't stop its run", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			ctx, leave := context.WithCancel(t.Context())
			psp.before = func() error { leave(); return nil }
			_, s := start(t, &process{db: db}, pay(psp, nil), nil)
			if a, err := s.Do(ctx, in, ledger.Options{}, []byte("10 EUR")); err != nil || a.Result.Status != 201 {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	})

	t.Run("an answer that comes when the time is over is recorded all the same", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error { time.Sleep(31 * time.Second); return nil } // WorkTimeout is 30s.
			_, s := start(t, &process{db: db}, pay(psp, nil), nil)
			if _, err := s.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR")); !errors.Is(err, reprise.ErrOutcomeUnknown) {
				t.Errorf("got %v, want outcome-unknown: there was no time to finish", err)
			}
			if _, took := persist(t, s, in, "10 EUR"); took != 0 || psp.sends != 1 {
				t.Errorf("finished after %v and %d sends; want at once, from the recorded answer", took, psp.sends)
			}
		})
	})

	t.Run("a renewal on its way can't take a lease back that was given up", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error {
				psp.after = nil
				time.Sleep(lease/3 + time.Second) // A renewal has begun by then.
				return errors.New("connection reset")
			}
			_, s := start(t, &process{db: db, slow: 5 * time.Second}, pay(psp, nil), nil)
			if _, err := s.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR")); !errors.Is(err, reprise.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			if _, took := persist(t, s, in, "10 EUR"); took != 0 {
				t.Errorf("the next attempt waited %v", took)
			}
		})
	})

	t.Run("L9: a run in progress is driven on however old its key is", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			in := payment(mintedAt(time.Now()), 1)
			psp.after = func() error { psp.after = nil; return errors.New("connection reset") }
			_, s := start(t, &process{db: db}, pay(psp, nil), nil)
			if _, err := s.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR")); !errors.Is(err, reprise.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			time.Sleep(31 * 24 * time.Hour)
			if _, err := s.Do(t.Context(), payment(in.Key, 2), ledger.Options{}, nil); !errors.Is(err, reprise.ErrKeyReused) {
				t.Errorf("another content got %v", err)
			}
			persist(t, s, in, "10 EUR")
			psp.check(t, in, 1)
		})
	})

	t.Run("a client that has left before its claim leaves nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			ctx, leave := context.WithCancel(t.Context())
			leave()
			_, s := start(t, &process{db: db}, pay(psp, nil), nil)
			if _, err := s.Do(ctx, in, ledger.Options{}, nil); reprise.OutcomeOf(err) != reprise.NotProcessed || len(db.entries) != 0 {
				t.Errorf("got %v and %d records", err, len(db.entries))
			}
		})
	})

	t.Run("L6: another fingerprint is turned away, in flight, in another process and afterwards", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error { time.Sleep(time.Second); return nil }
			_, s1 := start(t, &process{db: db}, pay(psp, nil), nil)
			_, s2 := start(t, &process{db: db}, pay(psp, nil), nil)
			done := make(chan error, 1)
			go func() {
				_, err := s1.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
				done <- err
			}()
			synctest.Wait()
			reused := func(when string) {
				for _, s := range []*ledger.Staged[*memoryTx]{s1, s2} {
					from := time.Now()
					_, err := s.Do(t.Context(), payment("k", 2), ledger.Options{}, []byte("20 EUR"))
					if !errors.Is(err, reprise.ErrKeyReused) || time.Since(from) != 0 {
						t.Errorf("%s: got %v after %v, want key-reused at once", when, err, time.Since(from))
					}
				}
			}
			reused("in flight")
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			reused("afterwards")
			psp.check(t, in, 1)
		})
	})

	t.Run("L11: a run in another process is waited for, and its result shared", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error { time.Sleep(time.Second); return nil }
			_, s1 := start(t, &process{db: db}, pay(psp, nil), nil)
			_, s2 := start(t, &process{db: db}, pay(psp, nil), nil)
			go func() { _, _ = s1.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR")) }()
			synctest.Wait()
			from := time.Now()
			_, err := s2.Do(t.Context(), in, ledger.Options{Wait: 100 * time.Millisecond}, nil)
			if !errors.Is(err, reprise.ErrInProgress) || time.Since(from) != 100*time.Millisecond {
				t.Errorf("got %v after %v, want in-progress after the wait", err, time.Since(from))
			}
			a, err := s2.Do(t.Context(), in, ledger.Options{}, nil)
			if err != nil || !a.Replayed || a.Result.Status != 201 {
				t.Errorf("got %+v, %v; want the result", a, err)
			}
			psp.check(t, in, 1)
		})
	})

	t.Run("those who wait for a run that ends unknown don't send its call again, one by one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error { time.Sleep(time.Second); return errors.New("connection reset") }
			_, s := start(t, &process{db: db}, pay(psp, nil), nil)
			errs := make(chan error, 50)
			for range 50 {
				go func() {
					_, err := s.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
					errs <- err
				}()
			}
			for range 50 {
				if err := <-errs; !errors.Is(err, reprise.ErrOutcomeUnknown) {
					t.Errorf("got %v", err)
				}
			}
			if psp.sends != 1 {
				t.Errorf("%d sends to a provider in trouble", psp.sends)
			}
		})
	})

	t.Run("L12: a panic gives the lease up and goes on to the caller", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, psp := newMemory(), newProvider()
			psp.after = func() error { panic("boom") }
			_, s := start(t, &process{db: db}, pay(psp, nil), nil)
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v", p)
					}
				}()
				_, err := s.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
				t.Errorf("returned %v", err)
			}()
			psp.after = nil
			if _, took := persist(t, s, in, "10 EUR"); took != 0 {
				t.Errorf("the next attempt waited %v", took)
			}
			psp.check(t, in, 1)
		})
	})

	t.Run("an intent of another operation is refused", func(t *testing.T) {
		t.Parallel()
		_, s := start(t, &process{db: newMemory()}, pay(newProvider(), nil), nil)
		if _, err := s.Do(t.Context(), intentOf("k", 1), ledger.Options{}, nil); reprise.OutcomeOf(err) != reprise.NotProcessed {
			t.Errorf("got %v", err)
		}
		if s.Operation() != "pay" {
			t.Errorf("Operation() = %q", s.Operation())
		}
	})
}

func TestNewStaged(t *testing.T) {
	t.Parallel()
	l, s := start(t, &process{db: newMemory()}, pay(newProvider(), nil), nil)
	h := pay(newProvider(), nil)
	for name, err := range map[string]error{
		"a second handler": second(ledger.NewStaged(l, s.Operation(), h)),
		"no name":          second(ledger.NewStaged(l, "", h)),
		"no handler":       second(ledger.NewStaged[*memoryTx](l, "refund", nil)),
		"no ledger":        second(ledger.NewStaged(nil, "refund", h)),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

var _ store.Driver[*memoryTx] = (*process)(nil)
