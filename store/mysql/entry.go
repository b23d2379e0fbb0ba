// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// entryColumns are read as numbers and bytes, so that it doesn't matter how the
// DSN has times and character sets converted. They are in the order of
// record.Columns, and the last one is the server's time.
const entryColumns = "l.id, l.caller, l.operation, l.`key`, l.fingerprint, COALESCE(c.state, 'in_progress'), COALESCE(r.token, l.token), " +
	"c.status, c.headers, c.body, c.reference, r.input, " + entryTail

// headColumns are entryColumns without what may be large.
const headColumns = "l.id, l.caller, l.operation, l.`key`, l.fingerprint, COALESCE(c.state, 'in_progress'), COALESCE(r.token, l.token), " +
	"c.status, NULL, NULL, c.reference, NULL, " + entryTail

// The record of an atomic execution is made when it completes; that of a run when it
// begins.
const entryTail = "r.epoch, r.drives, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', r.lease_until), " +
	"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', IF(r.id IS NULL AND c.id IS NOT NULL, c.completed_at, l.claimed_at)), " +
	"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', c.completed_at), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', c.expires_at), " +
	"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', c.tombstone_until), " + nowMicros

// entryTables are where they come from. One statement sees all three as of one
// moment.
const entryTables = " FROM reprise_ledger AS l LEFT JOIN reprise_run AS r ON r.id = l.id LEFT JOIN reprise_result AS c ON c.id = l.id "

// nowMicros is the server's time in microseconds since 1970. It is that of the
// statement's begin, in long transactions too.
const nowMicros = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// later is a time as it will be read back.
func later(at time.Time, d time.Duration) time.Time { return at.Add(d.Truncate(time.Microsecond)) }

// scanEntry reads entryColumns, and the server's time.
func scanEntry(row []driver.Value) (e store.Entry, now time.Time, err error) {
	c := record.Read(row)
	return c.Entry(), c.Time(), c.Err()
}

// header is encoded header fields as they are stored.
func header(encoded string) []byte {
	if encoded == "" {
		return nil
	}
	return []byte(encoded)
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
