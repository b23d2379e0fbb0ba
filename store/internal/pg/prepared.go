// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"bytes"
	"fmt"
	"hash/fnv"

	"github.com/reprise-go/reprise"
)

// prepared is a statement that a session plans once, and not for each transaction.
// It is prepared by SQL: unlike one of the protocol it can go into one message with
// others, and every client library can send it.
type prepared struct{ name, text string }

// newPrepared names the statement by its text, so that two releases of this package
// that share the sessions of a pooler don't take each other's.
func newPrepared(what, types, sql string) prepared {
	h := fnv.New32a()
	h.Write([]byte(types + sql))
	name := fmt.Sprintf("reprise_%s_%08x", what, h.Sum32())
	return prepared{name: name, text: "PREPARE " + name + " (" + types + ") AS " + sql}
}

func (p prepared) execute(literals ...[]byte) string {
	return "EXECUTE " + p.name + "(" + string(bytes.Join(literals, []byte(","))) + ")"
}

var (
	quickClaim = newPrepared("claim", "uuid, bigint, int, int, text", "SELECT FROM generate_series(1, "+claimFirst+
		" AND set_config('reprise.token', $5::text, true) <> '' AND "+watchful+" <> '' THEN 1 ELSE 2 END)")
	send = newPrepared("send", "text, text, text, text, timestamptz, text, bytea, text, bigint", SendSQL)
)

// PrepareText prepares what QuickText and SendText need, for the session. It fails
// if the session has them (see Unprepared).
var PrepareText = quickClaim.text + "; " + send.text

// Unprepared says whether err is that a session lacks the statements of
// PrepareText, or has them already: behind a pooler nobody knows before.
func Unprepared(err error) bool {
	state := SQLState(err)
	return state == "26000" || state == "42P05"
}

// QuickText asks what ClaimFirst asks, in a session that is prepared, and leaves
// the token in the transaction as ClaimCase does. Its number of rows is the Verdict.
func (c Claim) QuickText() string { return quickClaim.execute(c.literals()...) }

// CloserText asks what ClaimCase asks, in any session.
func (c Claim) CloserText() string {
	return "SELECT FROM generate_series(1, " + inline(ClaimCase, c.literals()...) + ")"
}

// SendText is FlushText for a session that is prepared.
func SendText(messages []reprise.Message) (string, error) {
	var b []byte
	locks := SubjectLocks(messages)
	if len(locks) > 0 {
		b = append(b, "SET LOCAL lock_timeout = '"+lockTimeout+"';"...)
	}
	if len(locks) > 1 { // before all messages, and in their order
		b, locks = append(appendLocks(append(b, "SELECT "...), locks), ';'), nil
	}
	for _, m := range messages {
		literals, err := messageLiterals(m)
		if err != nil {
			return "", err
		}
		// The first message has the only lock there is, whose subject ever it is.
		lock := []byte("NULL")
		if len(locks) > 0 {
			lock, locks = quoteInt(nil, locks[0]), nil
		}
		b = append(append(b, send.execute(append(literals, lock)...)...), ';')
	}
	return string(b), nil
}
