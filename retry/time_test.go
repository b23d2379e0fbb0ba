// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
)

// TestTime is the part of Do that is about time, on a clock of its own.
func TestTime(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	busy := func(after time.Duration) error {
		return &reprise.Error{Code: "busy", Outcome: reprise.NotProcessed, RetryAfter: after}
	}
	type result struct {
		calls int
		took  time.Duration
		err   error
	}
	run := func(t *testing.T, ctx context.Context, o retry.Options, sc *script) result {
		t.Helper()
		if o.Rand == nil {
			o.Rand = func() float64 { return 0 }
		}
		p, err := retry.New(&o)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = retry.Do(ctx, p, sc.attempt)
		return result{sc.calls, time.Since(start), err}
	}

	// hashicorp/go-retryablehttp#247 and #272, urllib3/urllib3#1338, TIME-06: no client sleeps to the end of a deadline that
	// the wait doesn't fit, or loses the answer that asked for it.
	t.Run("C5 a wait that does not fit stops the call at once", func(t *testing.T) {
		for _, after := range []time.Duration{3600 * s, 10 * s, 2*s - 9*ms, math.MaxInt64} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				last := busy(after)
				r := run(t, t.Context(), retry.Options{Deadline: 2 * s}, &script{answers: []error{last, last}})
				if r.calls != 1 || r.took != 0 {
					t.Errorf("after %v: %d calls in %v, want 1 at once", after, r.calls, r.took)
				}
				if !errors.Is(r.err, context.DeadlineExceeded) || !errors.Is(r.err, last) {
					t.Errorf("after %v: %v does not match both the deadline and the last error", after, r.err)
				}
				e, _ := errors.AsType[*retry.Error](r.err)
				if after < math.MaxInt64 && !e.RetryAt.Equal(start.Add(after)) || !e.RetryAt.After(start) {
					t.Errorf("after %v: RetryAt is %v", after, e.RetryAt)
				}
			})
		}
	})

	t.Run("C5 a wait that just fits is slept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, t.Context(), retry.Options{Deadline: 2 * s}, &script{answers: []error{busy(2*s - 10*ms)}})
			if r.err != nil || r.calls != 2 || r.took != 2*s-10*ms {
				t.Errorf("%+v", r)
			}
		})
	})

	t.Run("C5 the context's deadline counts like the policy's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*s)
			defer cancel()
			r := run(t, ctx, retry.Options{Deadline: time.Hour}, &script{answers: []error{busy(10 * s)}})
			if r.calls != 1 || r.took != 0 || !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("%+v", r)
			}
		})
	})

	// hashicorp/go-retryablehttp#248: a clock in Retry-After made a client sleep for 55 years.
	t.Run("a wait longer than MaxWait stops the call, also without a deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, t.Context(), retry.Options{}, &script{answers: []error{busy(1743441608 * s)}})
			e, _ := errors.AsType[*retry.Error](r.err)
			if r.calls != 1 || r.took != 0 || e.Reason != retry.ReasonMaxWait || errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("%+v", r)
			}
		})
	})

	t.Run("C5 the random part is cut to what fits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, t.Context(), retry.Options{
				Deadline: 1 * s, Base: 10 * s, Rand: func() float64 { return 1 },
			}, &script{answers: []error{busy(0)}})
			if r.err != nil || r.calls != 2 || r.took != 990*ms {
				t.Errorf("%+v", r)
			}
		})
	})

	// dotnet/extensions#7001: one retry in ten came before the stated time.
	t.Run("C6 jitter goes only upward from what was asked", func(t *testing.T) {
		for _, row := range []struct {
			after, low, high time.Duration
		}{
			{1 * s, 1 * s, 2 * s},       // At least a second of spread: the resolution of the field.
			{40 * s, 40 * s, 50 * s},    // A quarter.
			{120 * s, 120 * s, 140 * s}, // At most Cap.
			{0, 0, 50 * ms},             // Nothing asked: the backoff alone.
		} {
			for random, want := range map[float64]time.Duration{0: row.low, 1: row.high} {
				synctest.Test(t, func(t *testing.T) {
					r := run(t, t.Context(), retry.Options{Rand: func() float64 { return random }}, &script{answers: []error{busy(row.after)}})
					if r.err != nil || r.took != want {
						t.Errorf("asked %v, random %v: %+v, want %v", row.after, random, r, want)
					}
				})
			}
		}
	})

	t.Run("C7 an attempt in progress is waited for, and uses up no attempts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			progress := &reprise.Error{Code: reprise.CodeInProgress}
			sc := &script{answers: []error{progress, progress, progress, progress, progress, progress}}
			r := run(t, t.Context(), retry.Options{MaxAttempts: 1, Deadline: 10 * s}, sc)
			if r.err != nil || r.calls != 7 || r.took != 6*50*ms { // Never less than Base: no busy loop.
				t.Errorf("%+v", r)
			}
		})
	})

	t.Run("C7 the deadline bounds the waiting, and the outcome is unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			progress := &reprise.Error{Code: reprise.CodeInProgress, RetryAfter: 1 * s}
			answers := make([]error, 100)
			for i := range answers {
				answers[i] = progress
			}
			r := run(t, t.Context(), retry.Options{Deadline: 5 * s}, &script{answers: answers})
			if r.calls != 5 || r.took != 4*s || !errors.Is(r.err, context.DeadlineExceeded) ||
				!errors.Is(r.err, reprise.ErrInProgress) || !errors.Is(r.err, reprise.ErrOutcomeUnknown) {
				t.Errorf("%+v", r)
			}
		})
	})

	// XRPLF/xrpl-go#273: two limits, so two names.
	t.Run("AttemptTimeout ends an attempt and not the call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sc := &script{took: time.Hour}
			r := run(t, t.Context(), retry.Options{AttemptTimeout: 3 * s, Deadline: 20 * s, Safety: contract.Keyed, MaxAttempts: 3}, sc)
			e, _ := errors.AsType[*retry.Error](r.err)
			if r.calls != 3 || r.took != 9*s || e.Reason != retry.ReasonAttempts || e.Outcome != reprise.Unknown {
				t.Errorf("%+v, reason %q", r, e.Reason)
			}
			if !errors.Is(e.Err, context.DeadlineExceeded) || e.Err.Error() != "the attempt took longer than AttemptTimeout, 3s" {
				t.Errorf("the last error is %v", e.Err)
			}
			if e.Attempts[1].Trigger != "timeout" {
				t.Errorf("the second attempt was made because of %q", e.Attempts[1].Trigger)
			}
		})
	})

	t.Run("Deadline ends the attempt that is running", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, t.Context(), retry.Options{AttemptTimeout: 3 * s, Deadline: 4 * s, Safety: contract.Keyed}, &script{took: time.Hour})
			e, _ := errors.AsType[*retry.Error](r.err)
			if r.calls != 2 || r.took != 4*s || e.Reason != retry.ReasonDeadline || e.Err.Error() != "the attempt ran into the call's deadline" {
				t.Errorf("%+v: %v", r, e.Err)
			}
		})
	})

	// googleapis/gax-go#420: the parent's end looked like one more time-out to retry.
	t.Run("a dead context is seen first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("the user left")
			cancel(why)
			r := run(t, ctx, retry.Options{Safety: contract.Safe}, &script{})
			if r.calls != 0 || !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, why) || reprise.OutcomeOf(r.err) != reprise.NotProcessed {
				t.Errorf("%+v, outcome %v", r, reprise.OutcomeOf(r.err))
			}
		})
	})

	t.Run("a context that ends during an attempt ends the call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1*s)
			defer cancel()
			r := run(t, ctx, retry.Options{Safety: contract.Safe}, &script{took: time.Hour})
			if r.calls != 1 || r.took != 1*s || !errors.Is(r.err, context.DeadlineExceeded) || reprise.OutcomeOf(r.err) != reprise.Unknown {
				t.Errorf("%+v", r)
			}
		})
	})

	t.Run("a context that is cancelled during the last attempt is why the call ends", func(t *testing.T) {
		for _, safety := range []contract.Safety{contract.Safe, contract.Unsafe} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				why := errors.New("the user left")
				time.AfterFunc(1*s, func() { cancel(why) })
				r := run(t, ctx, retry.Options{Safety: safety, MaxAttempts: 1}, &script{took: time.Hour})
				e, _ := errors.AsType[*retry.Error](r.err)
				if e.Reason != retry.ReasonCancelled || !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, why) || e.Outcome != reprise.Unknown {
					t.Errorf("%s: %+v", safety, r)
				}
			})
		}
	})

	// cenkalti/backoff#194, avast/retry-go#74, CLI-04.
	t.Run("cancelling ends a wait at once, with the last error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*s, cancel)
			last := busy(60 * s)
			r := run(t, ctx, retry.Options{}, &script{answers: []error{last, last}})
			if r.calls != 1 || r.took != 5*s || !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, last) {
				t.Errorf("%+v", r)
			}
		})
	})

	// TIME-08: a laptop that sleeps through the deadline.
	t.Run("nothing is sent after a suspension past the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, err := retry.New(&retry.Options{Deadline: 10 * s})
			if err != nil {
				t.Fatal(err)
			}
			var c retry.Call
			c.Start(t.Context(), p, contract.Safe, "")
			if _, err := c.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := c.End(t.Context(), retry.Verdict{Err: errLost})
			time.Sleep(time.Hour)
			if _, err := c.Begin(t.Context()); !d.Retry || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errLost) {
				t.Errorf("%+v, %v", d, err)
			}
		})
	})

	// cenkalti/backoff#188: what is counted is said: the whole call.
	t.Run("Deadline counts the first attempt too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, t.Context(), retry.Options{Deadline: 3 * s}, &script{took: 2 * s, answers: []error{busy(1 * s)}})
			if r.calls != 1 || r.took != 2*s {
				t.Errorf("%+v", r)
			}
		})
	})
}
