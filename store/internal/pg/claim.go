// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"encoding/binary"
	"encoding/hex"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// Verdict is what a claim found.
type Verdict int64

const (
	// Claimed: the intent is the transaction's to execute.
	Claimed Verdict = 1 + iota
	// Busy: another transaction holds the intent.
	Busy
	// OtherContent: the same, and it asks for something else (rule L6).
	OtherContent
	// Recorded: there is a record.
	Recorded
	// Forgotten: there is a record past its tombstone. The intent is claimed, and
	// Forget must run before its completion.
	Forgotten
)

// The number of the ledger's table is in every lock of an intent, so that ledgers
// in two schemas of one database don't take each other's.
const (
	ledgerSQL  = "'reprise_ledger'::regclass::oid"
	saltSQL    = "(" + ledgerSQL + "::bigint << 16)"
	lockSQL    = "$2::bigint # " + saltSQL
	contentSQL = "$3::int # " + ledgerSQL + "::int"

	// waitSQL waits for the lock of an intent, and trySQL doesn't.
	waitSQL = "SELECT pg_advisory_xact_lock($1::bigint # " + saltSQL + ")"
	trySQL  = "SELECT pg_try_advisory_xact_lock($1::bigint # " + saltSQL + ")"
)

// ClaimCase is the expression that claims an intent, or says why not. Its value
// is a Verdict. The parameters are those of Claim.Args.
//
// The locks only save work; the unique index decides. The first is on the intent,
// and is tried, never waited for. The second tells others which content holds the
// intent: it is shared, so it is always had, and a loser looks for it in one
// snapshot of the lock table. To try for it instead would take a holder that is
// just taking or releasing its two locks for one with other content, and a client
// that is told so takes a new key.
//
// The look-up is in the statement of the lock, so it may miss a record that was
// committed between the two; the unique index then has the last word.
const ClaimCase = `CASE
WHEN NOT pg_try_advisory_xact_lock(` + lockSQL + `) THEN
	CASE WHEN EXISTS (
		WITH l AS MATERIALIZED (SELECT pid, classid, objid, objsubid FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
		SELECT FROM l AS holder JOIN l AS content USING (pid)
		WHERE holder.objsubid = 1 AND ((holder.classid::bigint << 32) | holder.objid::bigint) = (` + lockSQL + `)
		AND content.objsubid = 2 AND content.classid = (` + contentSQL + `)::oid AND content.objid <> $4::int::oid) THEN 3 ELSE 2 END
WHEN EXISTS (SELECT FROM reprise_ledger WHERE id = $1::uuid) THEN
	CASE WHEN EXISTS (SELECT FROM reprise_ledger WHERE id = $1::uuid AND tombstone_until <= clock_timestamp())
		AND pg_try_advisory_xact_lock_shared(` + contentSQL + `, $4::int) AND set_config('reprise.token', $5::text, true) <> ''
		AND ` + watchful + ` <> '' THEN 5 ELSE 4 END
WHEN pg_try_advisory_xact_lock_shared(` + contentSQL + `, $4::int) AND set_config('reprise.token', $5::text, true) <> ''
	AND ` + watchful + ` <> '' THEN 1
ELSE 2 END`

// ClaimFirst is what ClaimCase says as long as nobody is in the way: Claimed. Busy
// and Recorded ask for a closer look by ClaimCase, in a statement of its own. It
// costs the server half as much, most of which is the start of the other's parts
// that are hardly ever run. It leaves no token in the transaction, which is known
// by its beginning instead; the parameters are those of Claim.FirstArgs.
const ClaimFirst = claimFirst + " THEN 1 ELSE 2 END"

// ClaimFirstWatched is ClaimFirst for a session that WatchSQL did not reach.
const ClaimFirstWatched = claimFirst + " AND " + watchful + " <> '' THEN 1 ELSE 2 END"

const claimFirst = `CASE
WHEN NOT pg_try_advisory_xact_lock(` + lockSQL + `) THEN 2
WHEN EXISTS (SELECT FROM reprise_ledger WHERE id = $1::uuid) THEN 4
WHEN pg_try_advisory_xact_lock_shared(` + contentSQL + `, $4::int)`

// watchful makes the server look after its client while a statement of this
// transaction runs: a backend that sleeps or waits for a row does not read its
// socket, so it would keep the claim of a process that was killed until it is done.
const watchful = "set_config('client_connection_check_interval', '50ms', true)"

// WatchSQL is the same for a session: it spares every transaction the setting,
// which costs it as much as a statement. $1 is the number under which the client
// knows the server's process. Behind a pooler that is another's, and there the
// session is not the client's to set; the row says whether it is.
const WatchSQL = "SELECT pg_backend_pid() = $1::bigint AND set_config('client_connection_check_interval', '50ms', false) <> ''"

const (
	forgetSQL      = "DELETE FROM reprise_ledger WHERE id = $1::uuid AND tombstone_until <= clock_timestamp()"
	forgetStepsSQL = "DELETE FROM reprise_step WHERE ledger_id = $1::uuid"
)

// Forget deletes a record past its tombstone, behind its claim.
func Forget(ctx context.Context, conn Conn, id reprise.IntentID) error {
	// In the order in which a purge locks them.
	for _, query := range []string{forgetSQL, forgetStepsSQL} {
		if _, err := conn.Exec(ctx, query, hexID(id)); err != nil {
			return err
		}
	}
	return nil
}

// Claim is an intent with what its claim needs.
type Claim struct {
	ID      reprise.IntentID
	Lock    int64
	Content [2]int32
	Token   store.Token
}

// lockOf is the advisory lock of an intent: the half of its id that is never a
// time. Two intents with one lock would only take turns.
func lockOf(id reprise.IntentID) int64 {
	return int64(binary.BigEndian.Uint64(id[8:]))
}

// NewClaim returns the claim of c.
func NewClaim(c store.Claim) Claim {
	id := c.Intent.ID()
	lock := lockOf(id)
	return Claim{
		ID: id, Lock: lock, Token: c.Token,
		Content: [2]int32{int32(lock), int32(binary.BigEndian.Uint32(c.Intent.Fingerprint[1:]))},
	}
}

// Args are the arguments of ClaimCase.
func (c Claim) Args() []any {
	return []any{hexID(c.ID), c.Lock, int64(c.Content[0]), int64(c.Content[1]), hex.EncodeToString(c.Token[:])}
}

// FirstArgs are the arguments of ClaimFirst.
func (c Claim) FirstArgs() []any { return c.Args()[:4] }

// Inline writes the arguments into ClaimFirst.
func (c Claim) Inline(sql string) string { return inline(sql, c.literals()...) }

func (c Claim) literals() [][]byte {
	return [][]byte{
		quoteUUID(nil, c.ID), quoteInt(nil, c.Lock), quoteInt(nil, int64(c.Content[0])), quoteInt(nil, int64(c.Content[1])),
		quoteText(hex.EncodeToString(c.Token[:])),
	}
}

// TokenText sets the token of a transaction that claims no intent, for CheckText.
func TokenText(t store.Token) string {
	return "SELECT set_config('reprise.token', '" + hex.EncodeToString(t[:]) + "', true), " + watchful
}

// CheckText is a statement that fails unless the transaction is the one in which
// TokenText set the token, and still alive. In front of COMMIT, in one message of
// the simple protocol, it keeps a COMMIT from being reached that would be answered
// with ROLLBACK, which a client library may not tell from success.
func CheckText(t store.Token) string {
	return "SELECT 1 / (current_setting('reprise.token', true) IS NOT DISTINCT FROM '" + hex.EncodeToString(t[:]) + "')::int"
}

// InFlight is the record of an intent that another transaction executes with
// other content. Of that content nothing is known but that it is not c's.
func InFlight(c store.Claim) store.Entry {
	e := store.Entry{ID: c.Intent.ID(), Intent: c.Intent, State: reprise.StateInProgress}
	for i := range len(e.Intent.Fingerprint) - 1 {
		e.Intent.Fingerprint[1+i] ^= 0xff
	}
	return e
}
