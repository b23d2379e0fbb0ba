// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestOutcome(t *testing.T) {
	t.Parallel()

	t.Run("C2 the zero value is unknown", func(t *testing.T) {
		t.Parallel()
		var o Outcome
		if o != Unknown || o.String() != "unknown" || (&Error{}).Outcome != Unknown || (Attempt{}).Outcome != Unknown {
			t.Errorf("the zero value is %v", o)
		}
	})

	t.Run("names are read as they are written", func(t *testing.T) {
		t.Parallel()
		for o, want := range map[Outcome]string{Unknown: "unknown", Succeeded: "succeeded", Rejected: "rejected", NotProcessed: "not-processed"} {
			text, err := o.MarshalText()
			if err != nil || string(text) != want {
				t.Errorf("%d is written %q, %v", o, text, err)
			}
			got := Succeeded
			if err := got.UnmarshalText(text); err != nil || got != o {
				t.Errorf("%q is read as %v, %v", text, got, err)
			}
		}
	})

	t.Run("C2 a name that is not known leaves unknown behind", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"", "Succeeded", "failed", "not_processed"} {
			o := Succeeded
			if err := o.UnmarshalText([]byte(name)); err == nil || o != Unknown {
				t.Errorf("%q is read as %v, %v", name, o, err)
			}
		}
	})

	t.Run("C2 a value out of range is written as unknown", func(t *testing.T) {
		t.Parallel()
		if got := Outcome(200).String(); got != "unknown" {
			t.Errorf("written %q", got)
		}
	})
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	proven := &Error{Code: CodeInternal, Outcome: NotProcessed}
	for name, row := range map[string]struct {
		err  error
		want Outcome
	}{
		"nil is success":                          {nil, Succeeded},
		"another error proves nothing":            {errors.New("failed"), Unknown},
		"a time-out proves nothing":               {context.DeadlineExceeded, Unknown},
		"a cancellation proves nothing":           {context.Canceled, Unknown},
		"an error that does not say":              {&Error{Code: CodeInternal}, Unknown},
		"an error that says":                      {proven, NotProcessed},
		"wrapped":                                 {fmt.Errorf("call: %w", proven), NotProcessed},
		"joined":                                  {errors.Join(context.DeadlineExceeded, proven), NotProcessed},
		"the outer error speaks, and it is doubt": {&Error{Code: CodeOutcomeUnknown, Err: proven}, Unknown},
		"a sentinel proves nothing by itself":     {ErrInProgress, Unknown},
	} {
		t.Run("C1 "+name, func(t *testing.T) {
			t.Parallel()
			if got := OutcomeOf(row.err); got != row.want {
				t.Errorf("%v is %v; want %v", row.err, got, row.want)
			}
		})
	}
}
