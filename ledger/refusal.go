// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/reprise-go/reprise"
)

// Refusal is an error that carries an answer: the transaction is rolled back,
// the answer is given, and nothing is stored, so the key stays free.
type Refusal struct { //nolint:errname // an answer that travels as an error, not a failure.
	// Result is answered as it is, with its allow-listed fields.
	Result reprise.Result
}

// Refuse returns a Refusal of r, for a handler to return as its error. It is for
// answers that say something of this moment and must not be remembered, such as
// 404 for a resource that may be created yet; an answer that decides the intent
// is returned as a result instead (rule L14).
//
// In a staged run it withdraws the claim, which is possible only as long as no
// step of the run is on record.
func Refuse(r reprise.Result) error { return &Refusal{Result: r} }

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("refused with status %d", r.Result.Status) }
