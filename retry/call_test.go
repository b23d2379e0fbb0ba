// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCall drives calls with random verdicts, policies and durations, and holds
// every step against the rules.
func TestCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { rapid.Check(bubble{t}, checkCall) })
}

// bubble keeps rapid from asking for the test's deadline, which is on another
// clock.
type bubble struct{ *testing.T }

func (bubble) Deadline() (time.Time, bool) { return time.Time{}, false }

func checkCall(t *rapid.T) {
	duration := func(label string, low, high time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, label))
	}
	o := retry.Options{
		MaxAttempts: rapid.IntRange(1, 6).Draw(t, "max"),
		Base:        duration("base", 1, time.Second),
		Cap:         duration("cap", time.Second, time.Minute),
		MinAttempt:  duration("least attempt", 1, time.Second),
		MaxWait:     duration("longest wait", 1, time.Hour),
		Rand:        func() float64 { return rapid.Float64Range(0, 1).Draw(t, "random") },
	}
	if rapid.Bool().Draw(t, "bounded") {
		o.Deadline = duration("deadline", time.Second, time.Hour)
	}
	p, err := retry.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	safety := rapid.SampledFrom([]contract.Safety{contract.Safe, contract.Idempotent, contract.Keyed, contract.Unsafe}).Draw(t, "safety")

	var c retry.Call
	start := time.Now()
	ctx := context.Background()
	c.Start(ctx, p, safety, "k")
	counted, unknown := 0, false
	for {
		if _, err := c.Begin(ctx); err != nil {
			checkStopped(t, err, retry.ReasonDeadline)
			return
		}
		if left := o.Deadline - time.Since(start); o.Deadline > 0 && left < o.MinAttempt && len(c.Attempts()) > 1 {
			t.Fatalf("attempt %d begins %v before the deadline", len(c.Attempts()), left)
		}
		time.Sleep(duration("took", 0, 2*time.Second))
		v := retry.Verdict{
			Outcome:    reprise.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome")),
			Final:      rapid.IntRange(0, 9).Draw(t, "final") == 0,
			InProgress: rapid.IntRange(0, 3).Draw(t, "in progress") == 0,
			After:      rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute, 1<<63 - 1}).Draw(t, "after"),
			Err:        errLost,
		}
		if v.InProgress {
			v.Outcome = reprise.Unknown
		}
		if !v.InProgress || o.Deadline == 0 {
			counted++
		}
		d := c.End(ctx, v)
		unknown = unknown || v.Outcome == reprise.Unknown

		switch got := c.Outcome(); {
		case v.Outcome == reprise.Succeeded || safety == contract.Safe && v.Outcome == reprise.Rejected:
			if got != v.Outcome {
				t.Fatalf("outcome %v after %v", got, v.Outcome)
			}
		case unknown && got != reprise.Unknown:
			t.Fatalf("C2: an unknown call became %v", got)
		}
		if !d.Retry {
			if d.Reason == "" {
				t.Fatal("stopped for no reason")
			}
			if v.Outcome != reprise.Succeeded {
				checkStopped(t, c.Failure(), d.Reason)
			}
			return
		}
		switch {
		case v.Outcome == reprise.Succeeded || v.Outcome == reprise.Rejected || v.Final:
			t.Fatalf("C8: resent after %+v", v)
		case v.Outcome == reprise.Unknown && !v.InProgress && safety == contract.Unsafe:
			t.Fatal("C8: an unsafe operation in doubt is resent")
		case counted >= o.MaxAttempts:
			t.Fatalf("%d attempts of %d are made, and there is another", counted, o.MaxAttempts)
		case d.Wait < v.After || v.InProgress && d.Wait < o.Base:
			t.Fatalf("C6: waits %v where %v is asked", d.Wait, v.After)
		case o.Deadline > 0 && time.Since(start)+d.Wait+o.MinAttempt > o.Deadline:
			t.Fatalf("C5: waits %v beyond what fits", d.Wait)
		}
		if err := c.Wait(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
}

func checkStopped(t *rapid.T, err error, reason retry.Reason) {
	e, ok := errors.AsType[*retry.Error](err)
	switch {
	case !ok:
		t.Fatalf("%v is no *retry.Error", err)
	case e.Reason != reason:
		t.Fatalf("reason %q, want %q", e.Reason, reason)
	case errors.Is(err, context.DeadlineExceeded) != (reason == retry.ReasonDeadline):
		t.Fatalf("%q matches context.DeadlineExceeded wrongly", reason)
	case len(e.Attempts) > 0 && !errors.Is(err, errLost):
		t.Fatal("the last error is lost")
	case reprise.OutcomeOf(err) != e.Outcome:
		t.Fatalf("OutcomeOf gives %v, the error says %v", reprise.OutcomeOf(err), e.Outcome)
	}
	for i, a := range e.Attempts {
		if a.Number != i+1 || a.Key != "k" || a.End.Before(a.Start) || i > 0 && a.Start.Sub(e.Attempts[i-1].End) < a.Wait {
			t.Fatalf("record %d is %+v", i+1, a)
		}
	}
}
