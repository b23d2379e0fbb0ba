// SPDX-License-Identifier: Apache-2.0

package reprise_test

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise"
)

// A key is chosen before the first attempt and kept for all of them; what a step
// calls downstream has a key of its own that never changes either.
func ExampleIntent_Derive() {
	intent := reprise.Intent{Caller: "alice", Operation: "pay-order", Key: "0190163d-8694-739b-aea5-966c26f8ad91"}
	fmt.Println(intent.Derive("charge"))
	fmt.Println(intent.Derive("refund"))
	// Output:
	// f9467752-ed31-8327-b00d-5df8cd80df49
	// fd522ad6-4a38-8521-918b-490c9d46925c
}

// Programs act on codes; errors.Is asks for one.
func ExampleError() {
	err := fmt.Errorf("paying: %w", &reprise.Error{Code: reprise.CodeInProgress, Detail: "another attempt is at work"})
	fmt.Println(errors.Is(err, reprise.ErrInProgress), reprise.OutcomeOf(err))
	fmt.Println(err)
	// Output:
	// true unknown
	// paying: in-progress: another attempt is at work
}
