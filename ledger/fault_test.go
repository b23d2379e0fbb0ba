// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
)

var errDisk = errors.New("disk says no")

func intentOf(key reprise.Key, fingerprint byte) reprise.Intent {
	return reprise.Intent{
		Caller: "alice", Operation: "create-order", Key: key,
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, fingerprint},
	}
}

// TestDoFaults covers what the store may answer to an execution, under a fake
// clock and by script, because a database can't be made to answer so at will.
func TestDoFaults(t *testing.T) {
	t.Parallel()
	type bundle struct {
		driver *scripted
		ledger *ledger.Ledger[*scriptedTx]
		// runs counts calls of work.
		runs int
		work ledger.Work[*scriptedTx]
	}
	setup := func(t *testing.T, test func(t *testing.T, b *bundle)) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := &bundle{driver: &scripted{}}
			l, err := ledger.New[*scriptedTx](b.driver, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.ledger = l
			b.work = func(context.Context, *scriptedTx) (reprise.Result, error) {
				b.runs++
				return reprise.Result{Status: 201, Body: fmt.Appendf(nil, "run %d", b.runs)}, nil
			}
			test(t, b)
		})
	}
	in := intentOf("k", 1)
	check := func(t *testing.T, err error, code reprise.Code, o reprise.Outcome) *reprise.Error {
		t.Helper()
		e, ok := errors.AsType[*reprise.Error](err)
		if !ok || e.Code != code || e.Outcome != o {
			t.Fatalf("got %v (%v), want %s with outcome %v", err, reprise.OutcomeOf(err), code, o)
		}
		return e
	}

	t.Run("L7: commit unknown, own record found: executed", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			var kept store.Entry
			b.driver.execute = func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
				done, err := work(ctx, nil)
				if err != nil {
					return store.Entry{}, false, err
				}
				kept = completed(c, done)
				return store.Entry{}, false, fmt.Errorf("%w: connection reset", store.ErrCommitUnknown)
			}
			b.driver.resolve = func(context.Context, reprise.Intent) (store.Entry, error) { return kept, nil }
			a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			if err != nil || a.Replayed || string(a.Result.Body) != "run 1" || b.runs != 1 {
				t.Errorf("got %+v, %v after %d runs; want the result of the one run, not replayed", a, err, b.runs)
			}
		})
	})

	t.Run("L7: commit unknown, another attempt's record found: replayed", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				return store.Entry{}, false, errors.Join(store.ErrCommitUnknown, err)
			}
			other := completed(store.Claim{Intent: in, Token: store.Token{1}}, store.Completion{Result: reprise.Result{Status: 200, Body: []byte("theirs")}})
			b.driver.resolve = func(context.Context, reprise.Intent) (store.Entry, error) { return other, nil }
			a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			if err != nil || !a.Replayed || string(a.Result.Body) != "theirs" {
				t.Errorf("got %+v, %v; want their result, replayed", a, err)
			}
			_, err = b.ledger.Do(t.Context(), intentOf("k", 2), ledger.Options{}, b.work)
			check(t, err, reprise.CodeKeyReused, reprise.NotProcessed)
		})
	})

	t.Run("L7: commit unknown, nothing found: runs again", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			tokens := map[store.Token]bool{}
			b.driver.execute = func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
				tokens[c.Token] = true
				done, err := work(ctx, nil)
				if err != nil || b.runs == 1 {
					return store.Entry{}, false, errors.Join(store.ErrCommitUnknown, err)
				}
				return completed(c, done), true, nil
			}
			b.driver.resolve = func(context.Context, reprise.Intent) (store.Entry, error) { return store.Entry{}, store.ErrNotFound }
			a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			if err != nil || a.Replayed || string(a.Result.Body) != "run 2" || b.runs != 2 || len(tokens) != 2 {
				t.Errorf("got %+v, %v after %d runs with %d tokens; want the second run's result, each run with its own token", a, err, b.runs, len(tokens))
			}
		})
	})

	t.Run("L7: commit unknown, never anything found: capped, and nothing was done", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				return store.Entry{}, false, errors.Join(store.ErrCommitUnknown, err)
			}
			b.driver.resolve = func(context.Context, reprise.Intent) (store.Entry, error) { return store.Entry{}, store.ErrNotFound }
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
			if b.runs != 11 {
				t.Errorf("ran %d times, want 1 + MaxReruns", b.runs)
			}
		})
	})

	t.Run("L7: commit unknown, store unreachable: outcome unknown after a bounded search", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			looks := 0
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				return store.Entry{}, false, errors.Join(store.ErrCommitUnknown, err)
			}
			b.driver.resolve = func(ctx context.Context, _ reprise.Intent) (store.Entry, error) {
				if looks++; looks == 3 {
					<-ctx.Done() // A connection that hangs must not hang the request.
				}
				return store.Entry{}, store.ErrUnavailable
			}
			ctx, leave := context.WithCancel(t.Context())
			start := time.Now()
			time.AfterFunc(time.Millisecond, leave)
			_, err := b.ledger.Do(ctx, in, ledger.Options{}, b.work)
			e := check(t, err, reprise.CodeOutcomeUnknown, reprise.Unknown)
			if e.RetryAfter < time.Second {
				t.Errorf("Retry-After is %v", e.RetryAfter)
			}
			if d := time.Since(start); d != 5*time.Second || looks != 3 || b.runs != 1 {
				t.Errorf("%d looks in %v after %d runs; want 3 in 5s after 1: the client's leaving must not end the search", looks, d, b.runs)
			}
		})
	})

	t.Run("L7: the search goes on when the work's own time is over", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			var kept store.Entry
			b.driver.execute = func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
				done, err := work(ctx, nil)
				kept = completed(c, done)
				time.Sleep(time.Minute) // Twice the WorkTimeout.
				return store.Entry{}, false, errors.Join(store.ErrCommitUnknown, err)
			}
			b.driver.resolve = func(ctx context.Context, _ reprise.Intent) (store.Entry, error) { return kept, ctx.Err() }
			if a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work); err != nil || a.Replayed {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	})

	t.Run("a database too busy to begin anything is given up after the wait", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			tries := 0
			b.driver.execute = func(context.Context, store.Claim, scriptedWork) (store.Entry, bool, error) {
				tries++
				time.Sleep(1500 * time.Millisecond)
				return store.Entry{}, false, store.ErrConflict
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
			if tries != 2 {
				t.Errorf("%d tries of 1.5s within a wait of 2s", tries)
			}
		})
	})

	t.Run("a commit that work's own error forestalled is not unknown", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				return store.Entry{}, false, err
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, func(context.Context, *scriptedTx) (reprise.Result, error) {
				// A handler that asked another ledger.
				return reprise.Result{}, fmt.Errorf("elsewhere: %w", store.ErrCommitUnknown)
			})
			check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		})
	})

	t.Run("L7: a record that was met and not confirmed is looked for, whatever became of work", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				if _, err := work(ctx, nil); err == nil {
					t.Error("the claim rides with the first statement of work, and that did not fail")
				}
				return store.Entry{}, false, store.ErrCommitUnknown
			}
			met := func(context.Context, *scriptedTx) (reprise.Result, error) {
				return reprise.Result{}, errors.New("a record exists")
			}
			kept := completed(store.Claim{Intent: in, Token: store.NewToken()}, store.Completion{Result: reprise.Result{Status: 201, Body: []byte("kept")}})
			b.driver.resolve = func(context.Context, reprise.Intent) (store.Entry, error) { return kept, nil }
			a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, met)
			if err != nil || !a.Replayed || string(a.Result.Body) != "kept" {
				t.Errorf("got %+v, %v; want the record", a, err)
			}
			b.driver.resolve = func(context.Context, reprise.Intent) (store.Entry, error) { return store.Entry{}, store.ErrUnavailable }
			other := intentOf("other", 1)
			_, err = b.ledger.Do(t.Context(), other, ledger.Options{}, met)
			check(t, err, reprise.CodeOutcomeUnknown, reprise.Unknown)
		})
	})

	t.Run("a lost conflict is run again", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
				done, err := work(ctx, nil)
				if err != nil || b.runs < 4 {
					return store.Entry{}, false, errors.Join(store.ErrConflict, err)
				}
				return completed(c, done), true, nil
			}
			a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			if err != nil || string(a.Result.Body) != "run 4" || b.ledger.Stats().Reruns != 3 {
				t.Errorf("got %+v, %v, %+v; want the fourth run's result", a, err, b.ledger.Stats())
			}
		})
	})

	t.Run("a conflict that work reports is run again whatever work made of it", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
				done, err := work(ctx, nil)
				if err != nil {
					return store.Entry{}, false, errors.Join(store.ErrConflict, err)
				}
				return completed(c, done), true, nil
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, func(ctx context.Context, tx *scriptedTx) (reprise.Result, error) {
				if r, err := b.work(ctx, tx); b.runs > 1 {
					return r, err
				}
				return reprise.Result{}, ledger.Refuse(reprise.Result{Status: 404})
			})
			if err != nil || b.runs != 2 {
				t.Errorf("got %v after %d runs, want a second run: what work saw in the first one was not to be trusted", err, b.runs)
			}
		})
	})

	t.Run("conflicts without end are capped, and nothing was done", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				return store.Entry{}, false, errors.Join(store.ErrConflict, err)
			}
			start := time.Now()
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
			if d := time.Since(start); b.runs != 11 || d == 0 || d > time.Second {
				t.Errorf("%d runs in %v; want 11 with back-off", b.runs, d)
			}
		})
	})

	t.Run("L13: re-runs share one deadline", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				time.Sleep(20 * time.Second)
				return store.Entry{}, false, errors.Join(store.ErrConflict, err)
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
			if b.runs != 2 {
				t.Errorf("ran %d times of 20s under a WorkTimeout of 30s", b.runs)
			}
		})
	})

	t.Run("L11: an intent that another process holds is waited for, then in progress", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			looks := 0
			b.driver.execute = func(context.Context, store.Claim, scriptedWork) (store.Entry, bool, error) {
				looks++
				return store.Entry{}, false, store.ErrBusy
			}
			start := time.Now()
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{Wait: time.Second}, b.work)
			if e := check(t, err, reprise.CodeInProgress, reprise.Unknown); e.RetryAfter < time.Second {
				t.Errorf("Retry-After is %v", e.RetryAfter)
			}
			if d := time.Since(start); d != time.Second || looks < 10 || looks > 200 {
				t.Errorf("%d looks in %v; want a second of looking without a busy loop", looks, d)
			}
		})
	})

	t.Run("L11: those who wait behind one with another content still wait for the run of theirs", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			running := store.Entry{Intent: in, State: reprise.StateInProgress}
			b.driver.execute = func(context.Context, store.Claim, scriptedWork) (store.Entry, bool, error) {
				time.Sleep(time.Millisecond)
				return running, false, nil
			}
			start := time.Now()
			go func() { _, _ = b.ledger.Do(t.Context(), intentOf("k", 2), ledger.Options{}, b.work) }()
			synctest.Wait()
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeInProgress, reprise.Unknown)
			if d := time.Since(start); d < 2*time.Second {
				t.Errorf("waited %v, want the whole wait", d)
			}
		})
	})

	t.Run("L12: a key is free within 100 ms of its holder's death", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			died := time.Now().Add(time.Second)
			b.driver.execute = func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
				if time.Now().Before(died) {
					return store.Entry{}, false, store.ErrBusy
				}
				done, err := work(ctx, nil)
				return completed(c, done), true, err
			}
			a, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			if d := time.Since(died); err != nil || a.Replayed || d > 100*time.Millisecond {
				t.Errorf("got %+v, %v, %v after the holder's death", a, err, d)
			}
		})
	})

	t.Run("L15: an unreachable store is refused before any work", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			for _, cause := range []error{store.ErrUnavailable, errDisk, context.DeadlineExceeded} {
				b.driver.execute = func(context.Context, store.Claim, scriptedWork) (store.Entry, bool, error) {
					return store.Entry{}, false, cause
				}
				_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
				check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
				if !errors.Is(err, cause) || b.runs != 0 {
					t.Errorf("got %v after %d runs; want the cause in it, and no run", err, b.runs)
				}
			}
		})
	})

	t.Run("a store that fails beneath the work is to blame, and nothing was done", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, err := work(ctx, nil)
				return store.Entry{}, false, errors.Join(store.ErrUnavailable, errDisk, err)
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
		})
	})

	t.Run("L10: a misused transaction is an internal error, also behind a refusal", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(ctx context.Context, _ store.Claim, work scriptedWork) (store.Entry, bool, error) {
				_, _ = work(ctx, nil)
				return store.Entry{}, false, store.ErrTxMisuse
			}
			refusing := func(context.Context, *scriptedTx) (reprise.Result, error) {
				return reprise.Result{}, ledger.Refuse(reprise.Result{Status: 404})
			}
			for _, work := range []ledger.Work[*scriptedTx]{b.work, refusing} {
				_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, work)
				check(t, err, reprise.CodeInternal, reprise.NotProcessed)
			}
		})
	})

	t.Run("F1: a record of another fingerprint version is neither replayed nor executed, and no new key is advised", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			later := in
			later.Fingerprint[0] = 2
			b.driver.execute = func(_ context.Context, c store.Claim, _ scriptedWork) (store.Entry, bool, error) {
				c.Intent = later
				return completed(c, store.Completion{Result: reprise.Result{Status: 201}}), false, nil
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeOutcomeUnknown, reprise.Unknown)
		})
	})

	t.Run("an unsettled record is unknown, and another fingerprint is still turned away", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.execute = func(context.Context, store.Claim, scriptedWork) (store.Entry, bool, error) {
				return store.Entry{Intent: in, State: reprise.StateUnsettled}, false, nil
			}
			_, err := b.ledger.Do(t.Context(), in, ledger.Options{}, b.work)
			check(t, err, reprise.CodeOutcomeUnknown, reprise.Unknown)
			_, err = b.ledger.Do(t.Context(), intentOf("k", 2), ledger.Options{}, b.work)
			check(t, err, reprise.CodeKeyReused, reprise.NotProcessed)
		})
	})

	t.Run("without a key, a commit unknown stays unknown", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.transact = func(ctx context.Context, work func(context.Context, *scriptedTx) error) error {
				return errors.Join(store.ErrCommitUnknown, work(ctx, nil))
			}
			_, err := b.ledger.Once(t.Context(), b.work)
			check(t, err, reprise.CodeOutcomeUnknown, reprise.Unknown)
			if b.runs != 1 {
				t.Errorf("ran %d times; what may have happened must not be run again", b.runs)
			}
		})
	})

	t.Run("without a key, a lost conflict is run again", func(t *testing.T) {
		setup(t, func(t *testing.T, b *bundle) {
			b.driver.transact = func(ctx context.Context, work func(context.Context, *scriptedTx) error) error {
				if err := work(ctx, nil); err != nil || b.runs < 3 {
					return errors.Join(store.ErrConflict, err)
				}
				return nil
			}
			r, err := b.ledger.Once(t.Context(), b.work)
			if err != nil || string(r.Body) != "run 3" {
				t.Errorf("got %q, %v", r.Body, err)
			}
		})
	})
}

func TestRunPurge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, calls := 1201, 0
		d := &scripted{purge: func(_ context.Context, limit int) (int, error) {
			if calls++; calls == 2 {
				return 0, store.ErrUnavailable
			}
			n := min(left, limit)
			left -= n
			return n, nil
		}}
		l, err := ledger.New[*scriptedTx](d, &ledger.Config{PurgeEvery: time.Minute, PurgeBatch: 500})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		if err := l.RunPurge(ctx); err != nil {
			t.Errorf("RunPurge returned %v at its end", err)
		}
		// A batch, a failure; after a minute a batch and the rest; after another
		// minute nothing.
		if calls != 5 || left != 0 || l.Stats().Purged != 1201 {
			t.Errorf("%d calls, %d records left, %+v", calls, left, l.Stats())
		}
	})
}
