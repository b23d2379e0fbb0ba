// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

// abandon leaves n runs of an operation behind, as a process does that dies
// after its claims.
func abandon(t *testing.T, db *memory, op reprise.Operation, n int) []reprise.Intent {
	t.Helper()
	var left []reprise.Intent
	for i := range n {
		p := &process{db: db, at: 1, fault: cutAfter}
		l, err := ledger.New[*memoryTx](p, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ledger.NewStaged(l, op, func(context.Context, *ledger.Run[*memoryTx]) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		in := payment(reprise.Key(fmt.Sprintf("%s-%d", op, i)), 1)
		in.Operation = op
		if _, err := s.Do(t.Context(), in, ledger.Options{}, []byte(in.Key)); !errors.Is(err, reprise.ErrOutcomeUnknown) {
			t.Fatalf("run %d: got %v", i, err)
		}
		left = append(left, in)
	}
	return left
}

func TestRecover(t *testing.T) {
	t.Parallel()

	t.Run("S6: one pass drives every lapsed run on, and none that is alive", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const n = 250 // More than two pages.
			db := newMemory()
			abandon(t, db, "pay", n)
			time.Sleep(lease)
			var mu sync.Mutex
			most, now := 0, 0
			l, s := start(t, &process{db: db}, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				_, err := run.Finish(ctx, func(_ context.Context, tx *memoryTx) (reprise.Result, error) {
					tx.insert(string(run.Input()))
					return reprise.Result{Status: 201}, nil
				})
				return err
			}, nil)
			alive := make(chan error, 1)
			go func() {
				_, err := s.Do(t.Context(), payment("alive", 1), ledger.Options{}, []byte("alive"))
				alive <- err
			}()
			synctest.Wait()
			report, err := l.Recover(t.Context())
			if want := (ledger.RecoveryReport{Found: n, Completed: n}); err != nil || report != want {
				t.Errorf("got %+v, %v; want %+v", report, err, want)
			}
			if most < 2 || most > 9 {
				t.Errorf("%d runs at once", most)
			}
			if err := <-alive; err != nil {
				t.Error(err)
			}
			rows := map[string]int{}
			for _, r := range db.rows {
				rows[r]++
			}
			if len(rows) != n+1 || len(db.rows) != n+1 {
				t.Errorf("%d rows of %d runs", len(db.rows), len(rows))
			}
			if got := l.Stats().Recovered; got != n {
				t.Errorf("%d counted as recovered", got)
			}
		})
	})

	t.Run("poisoned runs don't keep others from being driven, and stay in progress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			for _, poison := range abandon(t, db, "pay", 20) {
				if poison.Key != "pay-7" {
					defer func() {
						if e := db.entries[poison.ID()]; e.State != reprise.StateInProgress {
							t.Errorf("%s is %s", poison.Key, e.State)
						}
					}()
				}
			}
			time.Sleep(lease)
			l, _ := start(t, &process{db: db}, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				switch run.Intent().Key {
				case "pay-7":
					_, err := run.Finish(ctx, func(context.Context, *memoryTx) (reprise.Result, error) { return reprise.Result{Status: 201}, nil })
					return err
				case "pay-8":
					<-ctx.Done() // Hangs until its time is over.
				}
				panic("poison")
			}, nil)
			report, err := l.Recover(t.Context())
			if want := (ledger.RecoveryReport{Found: 20, Completed: 1, Pending: 19}); err != nil || report != want {
				t.Errorf("got %+v, %v; want %+v", report, err, want)
			}
		})
	})

	t.Run("runs without a handler are counted and left", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			left := abandon(t, db, "refund", 3)
			time.Sleep(lease)
			l, _ := start(t, &process{db: db}, pay(newProvider(), nil), nil)
			report, err := l.Recover(t.Context())
			if want := (ledger.RecoveryReport{Found: 3, Unhandled: 3}); err != nil || report != want {
				t.Errorf("got %+v, %v; want %+v", report, err, want)
			}
			for _, in := range left {
				if e := db.entries[in.ID()]; e.State != reprise.StateInProgress || e.Drives != 1 {
					t.Errorf("the run is %s after %d drives", e.State, e.Drives)
				}
			}
		})
	})

	t.Run("a run that refuses is withdrawn", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			abandon(t, db, "pay", 1)
			time.Sleep(lease)
			l, _ := start(t, &process{db: db}, func(context.Context, *ledger.Run[*memoryTx]) error {
				return ledger.Refuse(reprise.Result{Status: 404})
			}, nil)
			report, err := l.Recover(t.Context())
			if want := (ledger.RecoveryReport{Found: 1, Withdrawn: 1}); err != nil || report != want || len(db.entries) != 0 {
				t.Errorf("got %+v, %v and %d records; want %+v", report, err, len(db.entries), want)
			}
		})
	})

	t.Run("two processes recover side by side, each run once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			abandon(t, db, "pay", 40)
			time.Sleep(lease)
			h := func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				time.Sleep(time.Second)
				_, err := run.Finish(ctx, func(_ context.Context, tx *memoryTx) (reprise.Result, error) {
					tx.insert("paid")
					return reprise.Result{Status: 201}, nil
				})
				return err
			}
			reports := make(chan ledger.RecoveryReport, 2)
			for range 2 {
				l, _ := start(t, &process{db: db}, h, nil)
				go func() {
					r, err := l.Recover(t.Context())
					if err != nil {
						t.Error(err)
					}
					reports <- r
				}()
			}
			a, b := <-reports, <-reports
			if a.Completed+b.Completed != 40 || a.Lost+b.Lost == 0 || len(db.rows) != 40 {
				t.Errorf("%+v and %+v made %d rows", a, b, len(db.rows))
			}
		})
	})

	t.Run("a store that can't be read is reported", func(t *testing.T) {
		t.Parallel()
		p := &process{db: newMemory(), cut: true}
		l, _ := start(t, p, pay(newProvider(), nil), nil)
		if _, err := l.Recover(t.Context()); !errors.Is(err, errCut) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRunRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newMemory()
		hopeless := abandon(t, db, "pay", 1)[0]
		time.Sleep(lease)
		begin := time.Now()
		var mu sync.Mutex
		var drives []time.Duration
		l, s := start(t, &process{db: db}, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			down := time.Second // Until when its provider is down.
			if run.Intent().Key == hopeless.Key {
				down = time.Hour
				mu.Lock()
				drives = append(drives, time.Since(begin))
				mu.Unlock()
			}
			if time.Since(begin) < down {
				return errors.New("the provider is down")
			}
			_, err := run.Finish(ctx, func(context.Context, *memoryTx) (reprise.Result, error) { return reprise.Result{Status: 201}, nil })
			return err
		}, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.RunRecovery(ctx) }()

		// A run that stops now is driven on by the next passes.
		soon := payment("soon", 1)
		if _, err := s.Do(t.Context(), soon, ledger.Options{}, nil); !errors.Is(err, reprise.ErrOutcomeUnknown) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(time.Minute)
		if e := db.entry(soon); e.State != reprise.StateCompleted {
			t.Errorf("the run is %s after a minute", e.State)
		}

		// One that stops again and again is driven with growing pauses.
		time.Sleep(time.Hour - time.Minute)
		mu.Lock()
		if n := len(drives); n < 10 || n > 40 {
			t.Errorf("%d drives in an hour: %v", n, drives)
		}
		mu.Unlock()
		// Its client need not wait for them.
		if a, err := s.Do(t.Context(), hopeless, ledger.Options{}, nil); err != nil || a.Result.Status != 201 {
			t.Errorf("got %+v, %v", a, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("RunRecovery returned %v at its end", err)
		}
	})
}
