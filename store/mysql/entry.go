// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// entryColumns are read as numbers and bytes, so that it doesn't matter how the
// DSN has times and character sets converted. The last one is the server's time.
const entryColumns = "id, caller, operation, `key`, fingerprint, state, token, status, headers, body, reference, input, " + entryTail

// headColumns are entryColumns without what may be large.
const headColumns = "id, caller, operation, `key`, fingerprint, state, token, status, NULL, NULL, reference, NULL, " + entryTail

const entryTail = "epoch, drives, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', claimed_at), " +
	"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', completed_at), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at), " +
	"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', tombstone_until), " + nowMicros

// nowMicros is the server's time in microseconds since 1970. It is that of the
// statement's begin, in long transactions too.
const nowMicros = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// columns takes the values of a row one after the other and remembers the first
// that is not what it should be.
type columns struct {
	row []driver.Value
	err error
}

func (c *columns) next() driver.Value {
	if len(c.row) == 0 {
		c.fail("a row that is too short")
		return nil
	}
	v := c.row[0]
	c.row = c.row[1:]
	return v
}

func (c *columns) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("mysql: a stored record holds %s; the database is damaged, or was written by something else", what)
	}
}

func (c *columns) text() string {
	switch v := c.next().(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
		return ""
	default:
		c.fail(fmt.Sprintf("%T where text belongs", v))
		return ""
	}
}

// blob returns a copy; nil for NULL, and not nil for an empty one.
func (c *columns) blob() []byte {
	switch v := c.next().(type) {
	case []byte:
		return append(make([]byte, 0, len(v)), v...)
	case string:
		return []byte(v)
	case nil:
		return nil
	default:
		c.fail(fmt.Sprintf("%T where bytes belong", v))
		return nil
	}
}

// fixed fills an array.
func (c *columns) fixed(dest []byte) {
	if b := c.blob(); copy(dest, b) != len(dest) || len(b) != len(dest) {
		c.fail(fmt.Sprintf("%d bytes where %d belong", len(b), len(dest)))
	}
}

// number reads what arrives as a number or, from other versions of the driver,
// as its digits.
func (c *columns) number() int64 {
	switch v := c.next().(type) {
	case int64:
		return v
	case uint64:
		return int64(v) // nothing stored is that large
	case []byte:
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			c.fail(fmt.Sprintf("%.20q where a number belongs", v))
		}
		return n
	case nil:
		return 0
	default:
		c.fail(fmt.Sprintf("%T where a number belongs", v))
		return 0
	}
}

func (c *columns) time() time.Time {
	return moment(c.number())
}

// moment is the time of so many microseconds; 0 is none.
func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// later is a time as it will be read back.
func later(at time.Time, d time.Duration) time.Time { return at.Add(d.Truncate(time.Microsecond)) }

// scanEntry reads entryColumns, and the server's time.
func scanEntry(row []driver.Value) (e store.Entry, now time.Time, err error) {
	c := columns{row: row}
	c.fixed(e.ID[:])
	e.Intent.Caller = reprise.Caller(c.text())
	e.Intent.Operation = reprise.Operation(c.text())
	e.Intent.Key = reprise.Key(c.text())
	c.fixed(e.Intent.Fingerprint[:])
	e.State = reprise.State(c.text())
	c.fixed(e.Token[:])
	e.Result.Status = int(c.number())
	header, err := decodeHeader(c.text())
	if err != nil {
		c.fail("header fields that can't be read")
	}
	e.Result.Header = header
	e.Result.Body = c.blob()
	e.Result.Reference = c.text()
	e.Input = c.blob()
	e.Epoch = c.number()
	e.Drives = int(c.number())
	due := c.time()
	if e.State == reprise.StateInProgress {
		e.LeaseUntil = due
	}
	e.ClaimedAt = c.time()
	e.CompletedAt = c.time()
	e.ExpiresAt = c.time()
	e.TombstoneUntil = c.time()
	return e, c.time(), c.err
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

// encodeHeader writes header fields as a JSON object. A field value is bytes,
// not text, so each byte becomes the character of that number (ISO 8859-1), and
// comes back as it was (rule L4).
func encodeHeader(header map[string][]string) ([]byte, error) {
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
	return json.Marshal(out)
}

func decodeHeader(stored string) (map[string][]string, error) {
	if stored == "" {
		return nil, nil
	}
	var in map[string][]string
	if err := json.Unmarshal([]byte(stored), &in); err != nil {
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

// fits returns an error for the first value that is longer than its column: a
// server that is not in strict mode would cut it off without a word.
func fits(what string, limit int, values ...string) error {
	for _, v := range values {
		if len(v) > limit {
			return fmt.Errorf("mysql: %s of %d bytes; the limit is %d", what, len(v), limit)
		}
	}
	return nil
}
