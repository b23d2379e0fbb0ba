// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// recordInto and recordEnd are the INSERT of the record of an intent, around the
// time of its claim and its token. Where the transaction is known not to be that of
// the claim, one of the two is NULL, and the INSERT fails instead of keeping a record
// by itself. The parameters are those of Completion.Args.
const (
	recordInto = `INSERT INTO reprise_ledger (claimed_at, token, completed_at, expires_at, tombstone_until, due_at,
	id, caller, operation, key, fingerprint, state, status, headers, body, reference)
VALUES (`
	recordEnd = `, statement_timestamp(), statement_timestamp() + $1::bigint * interval '1 microsecond',
	statement_timestamp() + $2::bigint * interval '1 microsecond', statement_timestamp() + $3::bigint * interval '1 microsecond',
	$4::uuid, $5::text, $6::text, $7::text, $8::bytea, $9::text::reprise_state, $10::bigint, $11::text, $12::bytea, $13::text)
RETURNING claimed_at, completed_at`
)

const (
	// CompleteSQL inserts the record of an intent whose claim has left its token in
	// the transaction. Its row is for ScanTimes.
	CompleteSQL = recordInto + "now(), current_setting('reprise.token', true)::uuid" + recordEnd
	// RecordSQL inserts the record of an intent with a token, in a transaction that
	// began at a time, if that is known. The parameters are those of Completion.ArgsIn.
	RecordSQL = recordInto + "CASE WHEN now() = coalesce($15::timestamptz, now()) THEN now() END, $14::uuid" + recordEnd
	// RecordAndSendSQL is RecordSQL and SendSQL as one statement. The parameters of
	// the latter follow those of the former.
	RecordAndSendSQL = "WITH record AS (" + RecordSQL + "), message AS (" + messageInto +
		"$16::text, $17::text, $18::text, $19::text, $20::timestamptz, $21::text, $22::bytea, $23::text" +
		" WHERE $24::bigint IS NULL OR pg_advisory_xact_lock($24::bigint) IS NOT NULL) SELECT * FROM record"
	// RecordAndClaimSQL claims the intent and inserts its record, in front of what
	// belongs to it. Where the locks of the claim are not to be had there is no token,
	// which Unclaimed recognises. The parameters are those of Completion.ArgsClaiming.
	RecordAndClaimSQL = recordInto + "now(), CASE WHEN " + locksIn + " THEN $14::uuid END" + recordEnd
	// RecordAndClaimWatchedSQL is the same for a session that WatchSQL did not reach.
	RecordAndClaimWatchedSQL = recordInto + "now(), CASE WHEN " + locksIn + " AND " + watchful + " <> '' THEN $14::uuid END" + recordEnd

	locksIn = "pg_try_advisory_xact_lock($15::bigint # " + saltSQL + ") AND pg_try_advisory_xact_lock_shared($16::int # " +
		ledgerSQL + "::int, $17::int)"
)

// Unclaimed says whether an error of RecordAndClaimSQL is that the intent is
// another transaction's at this moment.
func Unclaimed(err error) bool { return SQLState(err) == "23502" }

// Completion is a completed intent before its times are known.
type Completion struct {
	Entry                store.Entry
	retention, tombstone int64
	header               string
}

// NewCompletion puts a result into the record of a claim. It takes the result
// over and returns an error if it can't be stored.
func NewCompletion(c store.Claim, done store.Completion) (*Completion, error) {
	out := &Completion{Entry: store.Entry{
		ID: c.Intent.ID(), Intent: c.Intent, Token: c.Token, State: reprise.StateCompleted, Result: done.Result,
	}}
	return out, out.set(done)
}

func (c *Completion) set(done store.Completion) error {
	body, tombstone := record.Lifetimes(done)
	c.retention, c.tombstone = body.Microseconds(), tombstone.Microseconds()
	record.Complete(&c.Entry, done)
	c.header = record.EncodeHeader(c.Entry.Result.Header)
	return checkText("the result's reference", c.Entry.Result.Reference)
}

// CheckIntent says whether the parts of an intent can be stored.
func CheckIntent(i reprise.Intent) error {
	if err := checkText("caller", string(i.Caller)); err != nil {
		return err
	}
	if err := checkText("operation", string(i.Operation)); err != nil {
		return err
	}
	return checkText("key", string(i.Key))
}

// due is when the purge has to look at the record, after its completion.
func (c *Completion) due() int64 {
	if c.Entry.State == reprise.StateTombstone {
		return c.tombstone
	}
	return c.retention
}

// Args are the arguments of CompleteSQL.
func (c *Completion) Args() []any {
	e := &c.Entry
	return []any{
		c.retention, c.tombstone, c.due(), hexID(e.ID), string(e.Intent.Caller), string(e.Intent.Operation), string(e.Intent.Key),
		e.Intent.Fingerprint[:], string(e.State), int64(e.Result.Status), text(c.header), data(e.Result.Body), e.Result.Reference,
	}
}

// ArgsIn are the arguments of RecordSQL, for a transaction that began then, by the
// server's clock; zero is not known.
func (c *Completion) ArgsIn(began time.Time) []any {
	args := append(c.Args(), hex.EncodeToString(c.Entry.Token[:]), nil)
	if !began.IsZero() {
		args[len(args)-1] = began
	}
	return args
}

// ArgsClaiming are the arguments of RecordAndClaimSQL.
func (c *Completion) ArgsClaiming(claim Claim) []any {
	return append(c.ArgsIn(time.Time{})[:14], claim.FirstArgs()[1:]...)
}

// ScanTimes reads the row of an INSERT of the record.
func (c *Completion) ScanTimes(scan Scan) error {
	var claimed, completed time.Time
	err := scan(&claimed, &completed)
	e := &c.Entry
	e.ClaimedAt, e.CompletedAt = claimed.UTC(), completed.UTC()
	e.ExpiresAt = e.CompletedAt.Add(time.Duration(c.retention) * time.Microsecond)
	e.TombstoneUntil = e.CompletedAt.Add(time.Duration(c.tombstone) * time.Microsecond)
	return err
}

// Insert runs CompleteSQL. An error of it is to be asked by Taken first.
func (c *Completion) Insert(ctx context.Context, conn Conn) error {
	return conn.Query(ctx, CompleteSQL, c.ScanTimes, c.Args()...)
}

// Left recognises, in an error of an INSERT of the record or of CheckText, that the transaction
// is not the one that was begun, or has failed without anybody noticing.
func Left(err error) error {
	switch SQLState(err) {
	case "22P02", "23502", "22012", "25P02":
		return fmt.Errorf("%w: its transaction was ended or had failed behind the driver's back: %w", store.ErrTxMisuse, err)
	}
	return err
}
