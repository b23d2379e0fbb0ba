// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// entryColumns are the columns that ScanEntry reads, the time of reading last.
const entryColumns = "uuid_send(id), caller, operation, key, fingerprint, state, uuid_send(token), coalesce(status, 0), headers, body, " +
	"reference, input, coalesce(epoch, 0), lease_until, coalesce(drives, 0), claimed_at, completed_at, expires_at, tombstone_until, clock_timestamp()"

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
		return e, false, errors.New("postgres: a stored record is not one of ours; the database is damaged, or was written by something else")
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
	if e.Result.Header, err = decodeHeader(r.headers); err != nil {
		return e, false, fmt.Errorf("postgres: the stored header fields of %s: %w", e.ID, err)
	}
	return e, expire(&e, r.now), nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// expire judges e at the time now: a completed record past its retention is a
// tombstone, and gone says that one past its tombstone doesn't exist (rule L9).
func expire(e *store.Entry, now time.Time) (gone bool) {
	if e.State != reprise.StateCompleted && e.State != reprise.StateTombstone {
		return false
	}
	if !now.Before(e.TombstoneUntil) {
		return true
	}
	if e.State == reprise.StateCompleted && !now.Before(e.ExpiresAt) {
		e.State = reprise.StateTombstone
	}
	if e.State == reprise.StateTombstone {
		e.Result.Header, e.Result.Body, e.Input = nil, nil, nil
	}
	return false
}

// same keeps one intent's record from answering for another with the same id.
func same(stored, asked reprise.Intent) error {
	stored.Fingerprint = asked.Fingerprint
	if stored != asked {
		return errors.New("postgres: two intents have one id, or the stored one was changed; nothing was done for the second")
	}
	return nil
}

// encodeHeader writes header fields as a JSON object. A field value is bytes,
// not text, so each byte becomes the character of that number (ISO 8859-1), and
// comes back as it was (rule L4). nil is NULL.
func encodeHeader(header map[string][]string) (*string, error) {
	if header == nil {
		return nil, nil
	}
	out := make(map[string][]string, len(header))
	for name, values := range header {
		widened := make([]string, len(values))
		for i, v := range values {
			widened[i] = widen(v)
		}
		out[widen(name)] = widened
	}
	return marshal(out)
}

func marshal(v any) (*string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	s := string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return &s, nil
}

func decodeHeader(stored *string) (map[string][]string, error) {
	if stored == nil {
		return nil, nil
	}
	var in map[string][]string
	if err := json.Unmarshal([]byte(*stored), &in); err != nil {
		return nil, err
	}
	out := make(map[string][]string, len(in))
	for name, values := range in {
		for i, v := range values {
			values[i] = narrow(v)
		}
		out[narrow(name)] = values
	}
	return out, nil
}

// widen turns each byte into a character. ASCII stays as it is.
func widen(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			runes := make([]rune, len(s))
			for j := range len(s) {
				runes[j] = rune(s[j])
			}
			return string(runes)
		}
	}
	return s
}

// narrow is the inverse of widen.
func narrow(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			b := make([]byte, 0, len(s))
			for _, r := range s {
				b = append(b, byte(r)) // widen made no other characters
			}
			return string(b)
		}
	}
	return s
}

// text is an optional text as an argument.
func text(s *string) any {
	if s == nil {
		return nil
	}
	return *s
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
