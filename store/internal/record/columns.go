// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// Columns takes the values of a row one after the other, as a database driver
// gives them, and remembers the first that is not what it should be. Drivers
// differ in whether text arrives as string or as bytes, and numbers as numbers or
// as their digits; NULL is the zero value.
type Columns struct {
	row []driver.Value
	err error
}

// Read begins with the first value of row.
func Read(row []driver.Value) Columns { return Columns{row: row} }

// Err is why a value was not what it should be, or nil.
func (c *Columns) Err() error { return c.err }

func (c *Columns) next() driver.Value {
	if len(c.row) == 0 {
		c.fail("a row that is too short")
		return nil
	}
	v := c.row[0]
	c.row = c.row[1:]
	return v
}

func (c *Columns) fail(what string) {
	if c.err == nil {
		c.err = Damaged(what)
	}
}

// Queryer is *sql.DB, *sql.Conn and *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Query hands the values of each row to row, which must not keep them, as a
// driver's own connection does.
func Query(ctx context.Context, q Queryer, row func([]driver.Value) error, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, dest := make([]driver.Value, len(names)), make([]any, len(names))
	for i := range values {
		dest[i] = (*any)(&values[i])
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := row(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Text returns the next value as text.
func (c *Columns) Text() string {
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

// Bytes returns a copy; nil for NULL, and not nil for an empty one.
func (c *Columns) Bytes() []byte {
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

// Array fills dest, and nothing less.
func (c *Columns) Array(dest []byte) {
	if b := c.Bytes(); copy(dest, b) != len(dest) || len(b) != len(dest) {
		c.fail(fmt.Sprintf("%d bytes where %d belong", len(b), len(dest)))
	}
}

// Number returns the next value as a number.
func (c *Columns) Number() int64 {
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

// Time returns the next value as a time, which is stored in microseconds.
func (c *Columns) Time() time.Time { return Time(c.Number()) }

// Time is the time of so many microseconds since 1970; 0 is none.
func Time(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// Entry reads id, caller, operation, key, fingerprint, state, token, status,
// headers, body, reference, input, epoch, drives, lease_until, claimed_at,
// completed_at, expires_at and tombstone_until. A lease of a record that is not
// in progress doesn't count.
func (c *Columns) Entry() (e store.Entry) {
	c.Array(e.ID[:])
	e.Intent.Caller = reprise.Caller(c.Text())
	e.Intent.Operation = reprise.Operation(c.Text())
	e.Intent.Key = reprise.Key(c.Text())
	c.Array(e.Intent.Fingerprint[:])
	e.State = reprise.State(c.Text())
	c.Array(e.Token[:])
	e.Result.Status = int(c.Number())
	header, err := DecodeHeader(c.Text())
	if err != nil {
		c.fail("header fields that can't be read")
	}
	e.Result.Header = header
	e.Result.Body = c.Bytes()
	e.Result.Reference = c.Text()
	e.Input = c.Bytes()
	e.Epoch = c.Number()
	e.Drives = int(c.Number())
	if lease := c.Time(); e.State == reprise.StateInProgress {
		e.LeaseUntil = lease
	}
	e.ClaimedAt = c.Time()
	e.CompletedAt = c.Time()
	e.ExpiresAt = c.Time()
	e.TombstoneUntil = c.Time()
	return e
}

// Step reads name, key, state, request, outcome and response.
func (c *Columns) Step() (s store.Step, err error) {
	s = store.Step{Name: c.Text(), Key: reprise.Key(c.Text()), State: store.StepState(c.Text()), Request: c.Bytes()}
	err = s.Outcome.UnmarshalText([]byte(c.Text()))
	s.Response = c.Bytes()
	if c.err != nil {
		err = c.err
	}
	return s, err
}

// Message reads message_id, source, type, subject, time, content_type, data and
// header. One that can't be read comes back with what could, and the reason.
func (c *Columns) Message() (reprise.Message, error) {
	m := reprise.Message{
		ID: c.Text(), Source: c.Text(), Type: c.Text(), Subject: c.Text(),
		Time: c.Time(), ContentType: c.Text(), Data: c.Bytes(),
	}
	header, err := DecodeAttributes(c.Text())
	if err != nil {
		return m, fmt.Errorf("store: the header of message %q: %w", m.ID, err)
	}
	m.Header = header
	return m, c.err
}
