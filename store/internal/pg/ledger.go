// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

const findSQL = "SELECT " + entryColumns + " FROM reprise_ledger WHERE id = $1::uuid"

// find returns the record of an id, or ErrNotFound.
func find(ctx context.Context, conn Conn, id reprise.IntentID) (e store.Entry, gone bool, err error) {
	found := false
	err = conn.Query(ctx, findSQL, func(scan Scan) (err error) {
		found = true
		e, gone, err = scanEntry(scan)
		return err
	}, hexID(id))
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return e, gone, err
}

// Lookup returns the record of the triple in i on a connection of the driver's,
// or ErrNotFound.
func Lookup(ctx context.Context, conn Conn, i reprise.Intent) (store.Entry, error) {
	e, gone, err := find(ctx, conn, i.ID())
	if err == nil {
		err = record.Own(e.Intent, i)
	}
	if err == nil && gone {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Entry{}, err
	}
	return e, nil
}

// Find implements store.Ledger.
func (c *Core) Find(ctx context.Context, i reprise.Intent) (e store.Entry, err error) {
	err = c.read(ctx, func(conn Conn) (err error) {
		e, err = Lookup(ctx, conn, i)
		return err
	})
	if err == nil {
		err = Settled(ctx, c, e)
	}
	return e, err
}

// Settled ends an answer from the record e: with DurableReplay it waits until the
// record is as durable as a new commit is, by making one. A record that can be read
// may still be waiting for its standby, and would be lost with this server.
//
// The transaction that waits sees the record itself. The server that has shown it
// may have been replaced meanwhile by a standby that never had it; that is
// store.ErrConflict, and nothing is known yet.
func Settled(ctx context.Context, c *Core, e store.Entry) error {
	if !c.options.DurableReplay {
		return nil
	}
	return c.write(ctx, func(conn Conn) error {
		n, err := conn.Exec(ctx, "SELECT FROM reprise_ledger WHERE id = $1::uuid AND token = $2::uuid", hexID(e.ID), hex.EncodeToString(e.Token[:]))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: the record that was seen is not on this server", store.ErrConflict)
		}
		return c.barrier(ctx, conn)
	})
}

// barrier makes the COMMIT of a transaction wait, with DurableReplay, until all that
// the transaction has seen is as durable as a new commit is. One that writes nothing
// waits for nothing.
func (c *Core) barrier(ctx context.Context, conn Conn) error {
	if !c.options.DurableReplay {
		return nil
	}
	// A time-out would end the wait for the standby without an error.
	if _, err := conn.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'reprise', '')")
	return err
}

// voidSQL keeps a message that the server has not read yet from making a record: it
// meets a tombstone that is over, which nobody else sees, and which the next attempt
// at the intent forgets as it makes its own record. It stays for longer than anything
// between a client and its server holds back what it was given.
const voidSQL = `INSERT INTO reprise_ledger (claimed_at, tombstone_until, due_at, id, token, state, fingerprint, caller, operation, key)
SELECT at, at, at + interval '1 day', $1::uuid, $2::uuid, 'tombstone', $3::bytea, $4::text, $5::text, $6::text
FROM (SELECT clock_timestamp() AS at OFFSET 0) AS now
ON CONFLICT ON CONSTRAINT reprise_ledger_id DO UPDATE SET due_at = excluded.due_at`

// void runs voidSQL, behind the lock of the intent.
func void(ctx context.Context, conn Conn, i reprise.Intent) error {
	token := store.NewToken()
	_, err := conn.Exec(ctx, voidSQL, hexID(i.ID()), hex.EncodeToString(token[:]), i.Fingerprint[:],
		string(i.Caller), string(i.Operation), string(i.Key))
	return err
}

// Resolve implements store.Ledger. It needs a transaction that may write, which a
// standby does not give: there a record may be missing that is not lost. The same
// goes for a primary that was replaced and does not know; only a barrier tells.
func (c *Core) Resolve(ctx context.Context, i reprise.Intent) (e store.Entry, err error) {
	missing := false
	err = c.write(ctx, func(conn Conn) error {
		if _, err := conn.Exec(ctx, waitSQL, lockOf(i.ID())); err != nil {
			return err
		}
		// This is a statement of its own, so it sees what the lock waited for.
		e, err = Lookup(ctx, conn, i)
		missing = err == store.ErrNotFound //nolint:errorlint // Lookup returns it as it is
		if missing {
			err = nil
			if c.options.Voids {
				err = void(ctx, conn, i)
			}
		}
		if err != nil {
			return err
		}
		return c.barrier(ctx, conn)
	})
	if err == nil && missing {
		err = store.ErrNotFound
	}
	return e, err
}

// Entries implements store.Ledger.
func (c *Core) Entries(ctx context.Context, f store.EntryFilter) (entries []store.Entry, err error) {
	limit := f.Limit
	if limit == 0 {
		limit = 100
	}
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("postgres: EntryFilter.Limit is %d; it is 1 to 1000", f.Limit)
	}
	query := "SELECT " + headColumns + " FROM reprise_ledger WHERE id > $1::uuid AND (tombstone_until > statement_timestamp()) IS NOT FALSE"
	args := []any{hexID(f.After), int64(limit)}
	switch f.State {
	case "":
	case reprise.StateTombstone:
		query += " AND (state = 'tombstone' OR state = 'completed' AND expires_at <= statement_timestamp())"
	case reprise.StateCompleted:
		query += " AND state = 'completed' AND expires_at > statement_timestamp()"
	default:
		query += " AND state = $3::text::reprise_state AND state IN ('in_progress', 'unsettled')"
		args = append(args, string(f.State))
	}
	err = c.read(ctx, func(conn Conn) error {
		entries = nil
		return conn.Query(ctx, query+" ORDER BY id LIMIT $2::bigint", func(scan Scan) error {
			e, gone, err := scanEntry(scan)
			if err == nil && !gone {
				entries = append(entries, e)
			}
			return err
		}, args...)
	})
	return entries, err
}

// purgeSQL turns records into tombstones, and forgets those of which that has
// ended too. A row that somebody has locked is somebody else's to purge. A
// tombstone keeps the fingerprint and the reference; inputs and steps hold requests
// and answers of other systems and go with the body.
//
// Claims and repeats read the ledger without locks, and a fresh row has an id of
// its own, so none of them waits for a purge, but one at a key that is just being
// forgotten.
const purgeSQL = `WITH due AS MATERIALIZED (
	SELECT id, tombstone_until <= statement_timestamp() AS over FROM reprise_ledger WHERE due_at <= statement_timestamp()
	ORDER BY due_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
steps AS (DELETE FROM reprise_step USING due WHERE ledger_id = due.id),
forgotten AS (DELETE FROM reprise_ledger AS l USING due WHERE l.id = due.id AND over),
kept AS (UPDATE reprise_ledger AS l SET state = 'tombstone', due_at = tombstone_until, headers = NULL, body = NULL, input = NULL
	FROM due WHERE l.id = due.id AND NOT over)
SELECT count(*) FROM due`

// Purge implements store.Ledger.
func (c *Core) Purge(ctx context.Context, limit int) (changed int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("postgres: Purge's limit is %d; it is at least 1", limit)
	}
	var n int64
	err = c.write(ctx, func(conn Conn) error {
		return conn.Query(ctx, purgeSQL, func(scan Scan) error { return scan(&n) }, int64(limit))
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
