// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
)

var (
	errRefused = &reprise.Error{Code: "refused", Outcome: reprise.NotProcessed, Err: syscall.ECONNREFUSED}
	errLost    = io.ErrUnexpectedEOF // Says nothing of the effect.
	errDecided = &reprise.Error{Code: "declined", Outcome: reprise.Rejected}
)

// script answers the attempts of a call in turn, and counts the effects that a
// server with this history would have had.
type script struct {
	answers []error
	took    time.Duration
	calls   int
}

func (s *script) attempt(ctx context.Context, _ *reprise.Attempt) (int, error) {
	s.calls++
	if s.took > 0 {
		select {
		case <-time.After(s.took):
		case <-ctx.Done():
			return -s.calls, context.Cause(ctx)
		}
	}
	if s.calls > len(s.answers) || s.answers[s.calls-1] == nil {
		return s.calls, nil
	}
	return -s.calls, s.answers[s.calls-1]
}

func TestDo(t *testing.T) {
	t.Parallel()
	ms, s := time.Millisecond, time.Second
	policy := func(t *testing.T, o retry.Options) *retry.Policy {
		t.Helper()
		if o.Rand == nil {
			o.Rand = func() float64 { return 0.5 }
		}
		p, err := retry.New(&o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	t.Run("C1 C8 what is sent again", func(t *testing.T) {
		t.Parallel()
		progress := &reprise.Error{Code: reprise.CodeInProgress}
		reused := &reprise.Error{Code: reprise.CodeKeyReused, Outcome: reprise.NotProcessed}
		for _, row := range []struct {
			name    string
			safety  contract.Safety
			err     error
			calls   int
			reason  retry.Reason
			outcome reprise.Outcome
		}{
			{"not processed, unsafe", contract.Unsafe, errRefused, 4, retry.ReasonAttempts, reprise.NotProcessed},
			{"not processed, keyed", contract.Keyed, errRefused, 4, retry.ReasonAttempts, reprise.NotProcessed},
			{"unknown, unsafe", contract.Unsafe, errLost, 1, retry.ReasonInDoubt, reprise.Unknown},
			{"unknown, nothing said of safety", "", errLost, 1, retry.ReasonInDoubt, reprise.Unknown},
			{"unknown, safe", contract.Safe, errLost, 4, retry.ReasonAttempts, reprise.Unknown},
			{"unknown, idempotent", contract.Idempotent, errLost, 4, retry.ReasonAttempts, reprise.Unknown},
			{"unknown, keyed", contract.Keyed, errLost, 4, retry.ReasonAttempts, reprise.Unknown},
			{"rejected, safe", contract.Safe, errDecided, 1, retry.ReasonFinal, reprise.Rejected},
			{"rejected, keyed", contract.Keyed, errDecided, 1, retry.ReasonFinal, reprise.Rejected},
			{"key reused", contract.Keyed, reused, 1, retry.ReasonFinal, reprise.NotProcessed},
			{"key expired", contract.Keyed, &reprise.Error{Code: reprise.CodeKeyExpired}, 1, retry.ReasonFinal, reprise.Unknown},
			// Nothing but attempts bounds this call, so that they count.
			{"in progress without a deadline", contract.Unsafe, progress, 4, retry.ReasonAttempts, reprise.Unknown},
		} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sc := &script{answers: []error{row.err, row.err, row.err, row.err, row.err}}
					got, err := retry.Do(t.Context(), policy(t, retry.Options{Safety: row.safety}), sc.attempt)
					e, ok := errors.AsType[*retry.Error](err)
					if !ok || !errors.Is(err, row.err) {
						t.Fatalf("error is %v, want a *retry.Error with %v", err, row.err)
					}
					if sc.calls != row.calls || len(e.Attempts) != row.calls || got != -row.calls {
						t.Errorf("%d calls, %d records, result %d; want %d", sc.calls, len(e.Attempts), got, row.calls)
					}
					if e.Reason != row.reason || reprise.OutcomeOf(err) != row.outcome {
						t.Errorf("reason %q, outcome %v; want %q, %v", e.Reason, reprise.OutcomeOf(err), row.reason, row.outcome)
					}
					if unknown := errors.Is(err, reprise.ErrOutcomeUnknown); unknown != (row.outcome == reprise.Unknown) {
						t.Errorf("matches ErrOutcomeUnknown: %v, with outcome %v", unknown, row.outcome)
					}
				})
			})
		}
	})

	t.Run("C2 unknown is sticky", func(t *testing.T) {
		t.Parallel()
		for _, row := range []struct {
			name    string
			safety  contract.Safety
			answers []error
			outcome reprise.Outcome
			code    reprise.Code
		}{
			{"lost, then refused", contract.Keyed, []error{errLost, errRefused, errRefused, errRefused}, reprise.Unknown, reprise.CodeOutcomeUnknown},
			{"lost, then rejected", contract.Keyed, []error{errLost, errDecided}, reprise.Unknown, reprise.CodeOutcomeUnknown},
			{"refused, then lost", contract.Unsafe, []error{errRefused, errLost}, reprise.Unknown, reprise.CodeOutcomeUnknown},
			{"refused, then rejected", contract.Unsafe, []error{errRefused, errDecided}, reprise.Rejected, "declined"},
			{"lost, then rejected, but without effects", contract.Safe, []error{errLost, errDecided}, reprise.Rejected, "declined"},
		} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sc := &script{answers: row.answers}
					_, err := retry.Do(t.Context(), policy(t, retry.Options{Safety: row.safety}), sc.attempt)
					if sc.calls != len(row.answers) {
						t.Errorf("%d calls, want %d", sc.calls, len(row.answers))
					}
					if got := reprise.OutcomeOf(err); got != row.outcome || reprise.CodeOf(err) != row.code {
						t.Errorf("outcome %v, code %q; want %v, %q", got, reprise.CodeOf(err), row.outcome, row.code)
					}
					if last := row.answers[len(row.answers)-1]; !errors.Is(err, last) {
						t.Errorf("%v does not lead to the last attempt's error, %v", err, last)
					}
				})
			})
		}
	})

	t.Run("C2 a settled answer overrules unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sc := &script{answers: []error{errLost, errDecided}}
			p := policy(t, retry.Options{Safety: contract.Keyed, Classify: func(a *reprise.Attempt, err error) retry.Verdict {
				v := retry.Classify(a, err)
				v.Settled = errors.Is(err, errDecided)
				return v
			}})
			_, err := retry.Do(t.Context(), p, sc.attempt)
			if reprise.OutcomeOf(err) != reprise.Rejected {
				t.Errorf("outcome %v of %v, want rejected", reprise.OutcomeOf(err), err)
			}
		})
	})

	t.Run("C9 records are kept on success", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var seen []reprise.Attempt
			p := policy(t, retry.Options{Deadline: 10 * s, Base: 100 * ms, OnAttempt: func(a reprise.Attempt) { seen = append(seen, a) }})
			sc := &script{answers: []error{errRefused, errRefused}, took: 20 * ms}
			got, err := retry.Do(t.Context(), p, func(ctx context.Context, a *reprise.Attempt) (int, error) {
				a.Key, a.Status = "k", 200+a.Number
				return sc.attempt(ctx, a)
			})
			if err != nil || got != 3 || len(seen) != 3 {
				t.Fatalf("%d, %v after %d records", got, err, len(seen))
			}
			for i, want := range []struct {
				wait    time.Duration
				trigger string
				outcome reprise.Outcome
				left    time.Duration
			}{
				{0, "first", reprise.NotProcessed, 9980 * ms},
				{50 * ms, "refused", reprise.NotProcessed, 9910 * ms},
				{100 * ms, "refused", reprise.Succeeded, 9790 * ms},
			} {
				a := seen[i]
				if a.Number != i+1 || a.Key != "k" || a.Status != 201+i || a.Sends != 1 || a.Wait != want.wait ||
					a.Trigger != want.trigger || a.Outcome != want.outcome || a.Remaining != want.left || a.End.Sub(a.Start) != 20*ms {
					t.Errorf("record %d is %+v, want %+v", i+1, a, want)
				}
				if (a.Err == nil) != (want.outcome == reprise.Succeeded) {
					t.Errorf("record %d has the error %v", i+1, a.Err)
				}
			}
		})
	})

	t.Run("an error is no success, whatever it claims", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sc := &script{answers: []error{&reprise.Error{Outcome: reprise.Succeeded}}}
			_, err := retry.Do(t.Context(), policy(t, retry.Options{}), sc.attempt)
			if err == nil || reprise.OutcomeOf(err) != reprise.Unknown {
				t.Errorf("%v, outcome %v", err, reprise.OutcomeOf(err))
			}
		})
	})

	t.Run("the error says what is known and what to do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sc := &script{answers: []error{errLost, &reprise.Error{Code: "busy", Outcome: reprise.NotProcessed, RetryAfter: time.Hour}}}
			_, err := retry.Do(t.Context(), policy(t, retry.Options{Safety: contract.Keyed, Deadline: time.Minute}), sc.attempt)
			want := "another attempt does not fit the deadline after 2 attempts, outcome unknown, try again at 2000-01-01T01:00:00Z: busy"
			if err.Error() != want {
				t.Errorf("the error reads\n%s\nwant\n%s", err, want)
			}
			if !strings.Contains(err.Error(), "unknown") {
				t.Error("the text hides that the effect is unknown")
			}
		})
	})
}
