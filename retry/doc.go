// SPDX-License-Identifier: Apache-2.0

// Package retry decides when to try again, from what an attempt proved about
// its effect and not from the text of its error (rules C1 to C9).
//
// An attempt ends in an outcome. NotProcessed is resent whatever the operation
// is; Unknown only if doing it twice is doing it once; Succeeded and Rejected
// are final. Unknown is sticky: when one attempt may have had its effect, a
// later "connection refused" does not make the call a failure (rules C1, C2).
//
// Do runs any function under a Policy. Call is the same decision without a loop,
// for a transport that has a loop of its own, as retryhttp does. Neither touches
// a network; both take their time from the clock of package time, which
// testing/synctest replaces.
package retry
