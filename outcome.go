// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"errors"
	"fmt"
)

// Outcome says what is known of the effect of one attempt or one call.
//
// The zero value is Unknown, so that forgetting to decide is the careful
// answer. The other three are claims that need evidence: an answer read to its
// end, a proven rollback, or a request that never left. Once an intent is
// Unknown no later error may turn it into Rejected or NotProcessed (rule C2).
type Outcome uint8

const (
	// Unknown: the effect may or may not have happened. Time-outs, resets,
	// gateway errors and a failed COMMIT are unknown.
	Unknown Outcome = iota
	// Succeeded: the effect happened, and its result was read completely.
	Succeeded
	// Rejected: the server decided against the request; trying again with the
	// same content gives the same decision.
	Rejected
	// NotProcessed: the request was never sent, or the server proved that it did
	// not act on it. It is safe to send again, whatever the operation is.
	NotProcessed
)

var outcomeNames = [...]string{"unknown", "succeeded", "rejected", "not-processed"}

// String returns the outcome's name as it stands on the wire.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return outcomeNames[Unknown]
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A name this version does
// not know is an error, and leaves Unknown behind.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, name := range outcomeNames {
		if name == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	*o = Unknown
	return fmt.Errorf("reprise: unknown outcome name %q", text)
}

// OutcomeOf says what err proves about the effect: Succeeded for nil, the
// outcome that an *Error in its chain claims, and Unknown for everything else.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Succeeded
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	return Unknown
}
