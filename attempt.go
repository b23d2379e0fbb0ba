// SPDX-License-Identifier: Apache-2.0

package reprise

import "time"

// Attempt is the record of one try of one call (rule C9). A call keeps the records
// of all its attempts, also when it succeeds, so that hidden multiplication of
// retries can be found.
type Attempt struct {
	// Number counts from 1.
	Number int
	// Key of the intent; empty for a call without one.
	Key Key
	// Start and End bound the attempt, without the wait before it.
	Start, End time.Time
	// Wait is how long the call slept before this attempt, and Trigger why:
	// "first", "connect", "reset", "timeout", "status-503", "in-progress" ...
	Wait    time.Duration
	Trigger string
	// Sends counts how often the transport put the request on a connection. 0
	// means it was never sent; more than 1 means that something below resent it.
	Sends int
	// Reused says that the connection had served an earlier request.
	Reused bool
	// Status is the HTTP status, or 0 when no answer was read.
	Status int
	// Outcome is what this attempt proved.
	Outcome Outcome
	// Remaining is the time left until the call's deadline when the attempt
	// ended; 0 when there is no deadline or it has passed.
	Remaining time.Duration
	// Err is why the attempt did not succeed; nil when it did.
	Err error
}
