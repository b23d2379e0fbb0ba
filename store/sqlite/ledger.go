// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

const (
	findSQL = "SELECT " + entryColumns + " FROM reprise_ledger WHERE id = ?"

	insertSQL = "INSERT INTO reprise_ledger (" + entryColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// Execute implements store.Ledger. The write lock is held from before the
// look-up until COMMIT, so two calls for one intent can't both find nothing, in
// this process or another; the unique index is the net below that.
func (d *Driver) Execute(ctx context.Context, c store.Claim,
	work func(ctx context.Context, tx *sql.Tx) (store.Completion, error),
) (e store.Entry, executed bool, err error) {
	if c.Number != 1 {
		// A repeat is likely, and needs neither the write lock nor a COMMIT.
		if e, err := d.Find(ctx, c.Intent); !errors.Is(err, store.ErrNotFound) {
			return e, false, err
		}
	}
	err = d.writer.do(ctx, func(s *session) error {
		found, prior, err := s.find(c.Intent)
		if err != nil {
			return err
		}
		if found {
			e, executed = prior, false
			return nil
		}
		e, err = s.execute(ctx, c, !prior.ClaimedAt.IsZero(), work)
		executed = err == nil
		return err
	})
	if err != nil {
		return store.Entry{}, false, err
	}
	return e, executed, nil
}

// execute does the work of a claim whose intent is absent, or forgotten but
// still stored.
func (s *session) execute(ctx context.Context, c store.Claim, forgotten bool,
	work func(ctx context.Context, tx *sql.Tx) (store.Completion, error),
) (store.Entry, error) {
	e := store.Entry{ID: c.Intent.ID(), Intent: c.Intent, Token: c.Token, ClaimedAt: now()}
	var done store.Completion
	err := s.lend(ctx,
		func(ctx context.Context, tx *sql.Tx) (err error) {
			if c.Held != nil {
				c.Held()
			}
			done, err = work(ctx, tx)
			return err
		},
		func() error {
			failpoint.Hit("sqlite/before-result")
			if forgotten {
				if err := s.forget(e.ID); err != nil {
					return err
				}
			}
			complete(&e, done)
			return s.insert(e)
		})
	if err != nil {
		return store.Entry{}, err
	}
	s.prove(e)
	return e, nil
}

// prove lets the batch be recognised by a row of it.
func (s *session) prove(e store.Entry) {
	if s.batch.proof == nil {
		s.batch.proof = &evidence{id: e.ID, token: e.Token}
	}
}

// complete puts the result into e.
func complete(e *store.Entry, c store.Completion) {
	record.Complete(e, c)
	body, tombstone := record.Lifetimes(c)
	e.CompletedAt = now()
	e.ExpiresAt, e.TombstoneUntil = later(e.CompletedAt, body), later(e.CompletedAt, tombstone)
}

func (s *session) insert(e store.Entry) error {
	_, err := s.conn.Exec(context.Background(), insertSQL, e.ID[:],
		string(e.Intent.Caller), string(e.Intent.Operation), string(e.Intent.Key), e.Intent.Fingerprint[:],
		string(e.State), e.Token[:], e.Result.Status, header(record.EncodeHeader(e.Result.Header)), nullable(e.Result.Body), e.Result.Reference,
		nullable(e.Input), e.Epoch, e.Drives,
		micros(e.LeaseUntil), micros(e.ClaimedAt), micros(e.CompletedAt), micros(e.ExpiresAt), micros(e.TombstoneUntil))
	return err
}

// forget deletes a record and its steps.
func (s *session) forget(id reprise.IntentID) error {
	return s.eachWith(id, "DELETE FROM reprise_step WHERE ledger_id = ?", "DELETE FROM reprise_ledger WHERE id = ?")
}

// eachWith runs queries one after the other, each with the id of one record.
func (s *session) eachWith(id reprise.IntentID, queries ...string) error {
	for _, query := range queries {
		if _, err := s.conn.Exec(context.Background(), query, id[:]); err != nil {
			return err
		}
	}
	return nil
}

// find looks the triple of i up. A record that is past its tombstone is not
// found, but returned all the same, for the one who replaces it.
func (s *session) find(i reprise.Intent) (found bool, e store.Entry, err error) {
	id := i.ID()
	// Most intents are new, and asking for one column instead of nineteen says so
	// in a fraction of the time.
	err = s.conn.Query(context.Background(), func([]driver.Value) error { found = true; return nil },
		"SELECT 1 FROM reprise_ledger WHERE id = ?", id[:])
	if err != nil || !found {
		return false, store.Entry{}, classify(err)
	}
	err = s.conn.Query(context.Background(), func(row []driver.Value) (err error) {
		e, err = scanEntry(row)
		return err
	}, findSQL, id[:])
	if err != nil {
		return false, store.Entry{}, classify(err)
	}
	if err := record.Own(e.Intent, i); err != nil {
		return false, store.Entry{}, err
	}
	return !record.Expire(&e, now()), e, nil
}

// Find implements store.Ledger.
func (d *Driver) Find(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	return find(ctx, d.read, i)
}

// reader runs a query and hands the raw values of each row to row.
type reader func(ctx context.Context, row func([]driver.Value) error, query string, args ...any) error

// read is the reader of what is committed. It is short: nothing of the user's runs
// inside it, and no write of this process waits for it longer than one query takes.
func (d *Driver) read(ctx context.Context, row func([]driver.Value) error, query string, args ...any) error {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = conn.Close() }()
	d.writer.log.reads.RLock()
	defer d.writer.log.reads.RUnlock()
	return queryRows(ctx, conn, row, query, args...)
}

func find(ctx context.Context, read reader, i reprise.Intent) (store.Entry, error) {
	id := i.ID()
	entries, err := queryEntries(ctx, read, findSQL, id[:])
	if err != nil {
		return store.Entry{}, err
	}
	if len(entries) == 0 {
		return store.Entry{}, store.ErrNotFound
	}
	e := entries[0]
	if err := record.Own(e.Intent, i); err != nil {
		return store.Entry{}, err
	}
	if record.Expire(&e, now()) {
		return store.Entry{}, store.ErrNotFound
	}
	return e, nil
}

func queryEntries(ctx context.Context, read reader, query string, args ...any) ([]store.Entry, error) {
	var entries []store.Entry
	err := read(ctx, func(row []driver.Value) error {
		e, err := scanEntry(row)
		entries = append(entries, e)
		return err
	}, query, args...)
	return entries, err
}

// queryRows hands the raw values of each row to row, as a connection does.
func queryRows(ctx context.Context, q record.Queryer, row func([]driver.Value) error, query string, args ...any) error {
	return classify(record.Query(ctx, q, row, query, args...))
}

// Resolve implements store.Ledger. When there is no record it commits a write
// that changes nothing, because only then is there no commit left in the log that
// a crash could bring back (see writer.established).
func (d *Driver) Resolve(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return store.Entry{}, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	defer discard(conn) // with its settings, and its transaction if one is open
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
		return store.Entry{}, classify(err)
	}
	if err := d.lock(ctx, conn); err != nil {
		return store.Entry{}, err
	}
	e, err := find(ctx, func(ctx context.Context, row func([]driver.Value) error, query string, args ...any) error {
		return queryRows(ctx, conn, row, query, args...)
	}, i)
	if !errors.Is(err, store.ErrNotFound) {
		return e, err
	}
	for _, query := range []string{overwriteSQL, "COMMIT"} {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), query); err != nil {
			return store.Entry{}, classify(err)
		}
	}
	return store.Entry{}, store.ErrNotFound
}

// lock takes the write lock on conn.
func (d *Driver) lock(ctx context.Context, conn *sql.Conn) error {
	return classify(untilFree(ctx, time.Now().Add(d.options.BusyTimeout), func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "BEGIN IMMEDIATE")
		return err
	}))
}

// discard closes a connection of the pool instead of giving it back.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// Entries implements store.Ledger.
func (d *Driver) Entries(ctx context.Context, f store.EntryFilter) ([]store.Entry, error) {
	limit := f.Limit
	if limit == 0 {
		limit = 100
	}
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("sqlite: EntryFilter.Limit is %d; it is 1 to 1000", f.Limit)
	}
	query := "SELECT " + headColumns + " FROM reprise_ledger WHERE id > ? AND NOT (state IN ('completed', 'tombstone') AND tombstone_until <= ?)"
	at := now()
	args := []any{f.After[:], at.UnixMicro()}
	switch f.State {
	case "":
	case reprise.StateTombstone:
		query += " AND (state = 'tombstone' OR state = 'completed' AND expires_at <= ?)"
		args = append(args, at.UnixMicro())
	case reprise.StateCompleted:
		query += " AND state = 'completed' AND expires_at > ?"
		args = append(args, at.UnixMicro())
	default:
		query += " AND state = ?"
		args = append(args, string(f.State))
	}
	entries, err := queryEntries(ctx, d.read, query+" ORDER BY id LIMIT ?", append(args, limit)...)
	for i := range entries {
		_ = record.Expire(&entries[i], at) // the query has left out those that are gone
	}
	return entries, err
}

// Purge implements store.Ledger.
func (d *Driver) Purge(ctx context.Context, limit int) (changed int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("sqlite: Purge's limit is %d; it is at least 1", limit)
	}
	err = d.writer.do(ctx, func(s *session) error {
		changed = 0
		return s.atomic(func() error {
			at := now().UnixMicro()
			for _, step := range purgeSteps {
				n, err := s.conn.Exec(context.Background(), step.query, at, limit-changed)
				if err != nil {
					return classify(err)
				}
				if step.counts {
					changed += int(n)
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// A tombstone keeps the fingerprint and the reference; inputs and steps hold
// requests and answers of other systems and go with the body.
var purgeSteps = []struct {
	query  string
	counts bool
}{
	{"DELETE FROM reprise_step WHERE ledger_id IN (SELECT id FROM reprise_ledger " + pastRetention + ")", false},
	{"UPDATE reprise_ledger SET state = 'tombstone', headers = NULL, body = NULL, input = NULL " +
		"WHERE rowid IN (SELECT rowid FROM reprise_ledger " + pastRetention + ")", true},
	{"DELETE FROM reprise_ledger WHERE rowid IN (SELECT rowid FROM reprise_ledger " +
		"WHERE state = 'tombstone' AND tombstone_until <= ? ORDER BY tombstone_until LIMIT ?)", true},
}

const pastRetention = "WHERE state = 'completed' AND expires_at <= ? ORDER BY expires_at, rowid LIMIT ?"
