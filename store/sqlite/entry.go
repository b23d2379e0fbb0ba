// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql/driver"
	"time"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// entryColumns are in the order of record.Columns, and headColumns are the same
// without what may be large.
const (
	entryColumns = entryHead + "headers, body, reference, input, " + entryTail
	headColumns  = entryHead + "NULL, NULL, reference, NULL, " + entryTail

	entryHead = "id, caller, operation, key, fingerprint, state, token, status, "
	entryTail = "epoch, drives, lease_until, claimed_at, completed_at, expires_at, tombstone_until"
)

func text(v driver.Value) string {
	c := record.Read([]driver.Value{v})
	return c.Text()
}

// now is the time of the host, which is the clock of a database that lives in
// files of that host (rule S3). In microseconds, as all times are stored.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// later is a time as it will be read back.
func later(at time.Time, d time.Duration) time.Time { return at.Add(d).Truncate(time.Microsecond) }

// micros is how a time is stored; zero is NULL.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// scanEntry reads entryColumns.
func scanEntry(row []driver.Value) (store.Entry, error) {
	c := record.Read(row)
	return c.Entry(), c.Err()
}

// nullable keeps nil and empty apart on their way through database/sql.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// header is encoded header fields as they are stored.
func header(encoded string) any {
	if encoded == "" {
		return nil
	}
	return encoded
}
