// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
)

// A driver's errors say what they prove through a Classifier. Here a queue
// refuses messages while it is full, which is proof that it did not take them.
func ExampleDo() {
	errFull := errors.New("queue is full")
	policy, err := retry.New(&retry.Options{
		Base:     time.Millisecond,
		Deadline: time.Second,
		Classify: func(a *reprise.Attempt, err error) retry.Verdict {
			v := retry.Classify(a, err)
			if errors.Is(err, errFull) {
				v.Outcome, v.Trigger = reprise.NotProcessed, "full"
			}
			return v
		},
		OnAttempt: func(a reprise.Attempt) {
			fmt.Printf("attempt %d because of %s: %v\n", a.Number, a.Trigger, a.Outcome)
		},
	})
	if err != nil {
		panic(err)
	}
	id, err := retry.Do(context.Background(), policy, func(_ context.Context, a *reprise.Attempt) (string, error) {
		if a.Number < 3 {
			return "", errFull
		}
		return "msg-1", nil
	})
	fmt.Println(id, err)
	// Output:
	// attempt 1 because of first: not-processed
	// attempt 2 because of full: not-processed
	// attempt 3 because of full: succeeded
	// msg-1 <nil>
}

// What may have happened is never called a failure.
func ExampleError() {
	policy, err := retry.New(&retry.Options{Base: time.Millisecond, MaxAttempts: 2, Safety: contract.Keyed})
	if err != nil {
		panic(err)
	}
	refused := &reprise.Error{Code: "refused", Outcome: reprise.NotProcessed}
	_, err = retry.Do(context.Background(), policy, func(_ context.Context, a *reprise.Attempt) (int, error) {
		if a.Number == 1 {
			return 0, io.ErrUnexpectedEOF // The answer was lost: the effect may be there.
		}
		return 0, refused
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, reprise.ErrOutcomeUnknown), errors.Is(err, refused))
	// Output:
	// all attempts are used up after 2 attempts, outcome unknown: refused
	// true true
}
