// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// CompleteSQL inserts the record of an intent at its completion and returns its
// times, for ScanTimes. Its token is the one that the claim left in the
// transaction: where that has ended in the meantime, however that came about, this
// fails instead of keeping a record by itself. The parameters are those of
// Completion.Args.
const CompleteSQL = `INSERT INTO reprise_ledger (claimed_at, completed_at, expires_at, tombstone_until, token,
	id, caller, operation, key, fingerprint, state, status, headers, body, reference)
VALUES (now(), statement_timestamp(), statement_timestamp() + $1::bigint * interval '1 microsecond',
	statement_timestamp() + $2::bigint * interval '1 microsecond', current_setting('reprise.token', true)::uuid,
	$3::uuid, $4::text, $5::text, $6::text, $7::bytea, $8::text, $9::bigint, $10::text, $11::bytea, $12::text)
RETURNING claimed_at, completed_at, expires_at, tombstone_until`

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

// Args are the arguments of CompleteSQL.
func (c *Completion) Args() []any {
	e := &c.Entry
	return []any{
		c.retention, c.tombstone, hexID(e.ID), string(e.Intent.Caller), string(e.Intent.Operation), string(e.Intent.Key),
		e.Intent.Fingerprint[:], string(e.State), int64(e.Result.Status), text(c.header), data(e.Result.Body), e.Result.Reference,
	}
}

// ScanTimes reads what CompleteSQL returns.
func (c *Completion) ScanTimes(scan Scan) error {
	var claimed, completed, expires, tombstone time.Time
	err := scan(&claimed, &completed, &expires, &tombstone)
	c.Entry.ClaimedAt, c.Entry.CompletedAt = claimed.UTC(), completed.UTC()
	c.Entry.ExpiresAt, c.Entry.TombstoneUntil = expires.UTC(), tombstone.UTC()
	return err
}

// Insert runs CompleteSQL. An error of it is to be asked by Taken first.
func (c *Completion) Insert(ctx context.Context, conn Conn) error {
	return conn.Query(ctx, CompleteSQL, c.ScanTimes, c.Args()...)
}

// Left recognises, in an error of CompleteSQL or CheckText, that the transaction
// is not the one that was begun, or has failed without anybody noticing.
func Left(err error) error {
	switch SQLState(err) {
	case "22P02", "23502", "22012", "25P02":
		return fmt.Errorf("%w: its transaction was ended or had failed behind the driver's back: %w", store.ErrTxMisuse, err)
	}
	return err
}
