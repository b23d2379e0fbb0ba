// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// entryColumns are the columns that scanEntry reads, the time of reading last, and
// headColumns are the same without what may be large.
const (
	entryColumns = entryHead + "headers, body, reference, input, " + entryTail
	headColumns  = entryHead + "NULL::text, NULL::bytea, reference, NULL::bytea, " + entryTail

	entryHead = "uuid_send(id), caller, operation, key, fingerprint, state::text, uuid_send(token), coalesce(status, 0), "
	entryTail = "coalesce(epoch, 0), lease_until, coalesce(drives, 0), claimed_at, completed_at, expires_at, tombstone_until, clock_timestamp()"
)

// entry is a row of the ledger on its way.
type entry struct {
	id, fingerprint, token, body, input  []byte
	caller, operation, key, state        string
	headers                              *string
	reference                            *string
	status, epoch, drives                int64
	lease, completed, expires, tombstone *time.Time
	claimed, now                         time.Time
}

// scanEntry reads entryColumns, as of now.
func scanEntry(scan Scan) (e store.Entry, gone bool, err error) {
	var r entry
	if err := scan(&r.id, &r.caller, &r.operation, &r.key, &r.fingerprint, &r.state, &r.token, &r.status, &r.headers, &r.body,
		&r.reference, &r.input, &r.epoch, &r.lease, &r.drives, &r.claimed, &r.completed, &r.expires, &r.tombstone, &r.now); err != nil {
		return e, false, err
	}
	if len(r.id) != len(e.ID) || len(r.token) != len(e.Token) || len(r.fingerprint) != len(e.Intent.Fingerprint) {
		return e, false, record.Damaged("identities of another size")
	}
	e = store.Entry{
		ID: reprise.IntentID(r.id), Token: store.Token(r.token), State: reprise.State(r.state),
		Intent: reprise.Intent{
			Caller: reprise.Caller(r.caller), Operation: reprise.Operation(r.operation), Key: reprise.Key(r.key),
			Fingerprint: reprise.Fingerprint(r.fingerprint),
		},
		Input: r.input, Epoch: r.epoch, LeaseUntil: utc(r.lease), Drives: int(r.drives), ClaimedAt: r.claimed.UTC(),
		CompletedAt: utc(r.completed), ExpiresAt: utc(r.expires), TombstoneUntil: utc(r.tombstone),
		Result: reprise.Result{Status: int(r.status), Body: r.body},
	}
	if r.reference != nil {
		e.Result.Reference = *r.reference
	}
	if r.headers != nil {
		if e.Result.Header, err = record.DecodeHeader(*r.headers); err != nil {
			return e, false, record.Damaged("header fields that can't be read")
		}
	}
	return e, record.Expire(&e, r.now), nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// text is a text as an argument; an empty one is NULL.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// data is optional bytes as an argument.
func data(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// hexID is an id as an argument of type uuid.
func hexID(id [16]byte) string { return fmt.Sprintf("%x", id[:]) }
