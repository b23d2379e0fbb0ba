// SPDX-License-Identifier: Apache-2.0

package mysql

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
	findSQL = "SELECT " + entryColumns + entryTables + "WHERE l.id = ?"

	claimSQL = "INSERT INTO reprise_ledger (id, caller, operation, `key`, fingerprint, token, claimed_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"

	// LAST_INSERT_ID carries the server's time in the answer, which has a place for
	// one number. See server.guarded for the status.
	completeSQL = "INSERT INTO reprise_result (id, state, status, headers, body, reference, completed_at, expires_at, tombstone_until, due_at) " +
		"VALUES (?, ?, %s, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, " +
		"UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)"

	// forgetSQL deletes what is past its tombstone.
	forgetSQL = "DELETE l, c, r, s FROM reprise_ledger AS l JOIN reprise_result AS c ON c.id = l.id " +
		"LEFT JOIN reprise_run AS r ON r.id = l.id LEFT JOIN reprise_step AS s ON s.ledger_id = l.id " +
		"WHERE l.id = ? AND c.state IN ('completed', 'tombstone') AND c.tombstone_until <= UTC_TIMESTAMP(6)"
	stepsSQL = "DELETE FROM reprise_step WHERE ledger_id = ?"
)

// errForgotten says that the claim met a record that is past its tombstone.
var errForgotten = errors.New("mysql: the record is past its tombstone")

// Execute implements store.Ledger. The claim is a row that nobody else sees,
// inserted before the work begins: the primary key lets no second one in, and a
// transaction that is rolled back, or dies, takes it along.
func (d *Driver) Execute(ctx context.Context, c store.Claim,
	work func(ctx context.Context, tx *sql.Tx) (store.Completion, error),
) (e store.Entry, executed bool, err error) {
	if err := fit(c.Intent); err != nil {
		return e, false, err
	}
	if c.Number > 1 {
		// A repeat is likely, and needs no transaction.
		if e, err := d.Find(ctx, c.Intent); !errors.Is(err, store.ErrNotFound) {
			return e, false, err
		}
	}
	if !d.server.multi {
		return d.execute(ctx, c, work)
	}
	err = d.session(ctx, func(s *session) (err error) {
		e, executed, err = s.ride(ctx, c, work)
		return err
	})
	if u, ok := errors.AsType[*unclaimedError](err); ok {
		return d.settle(ctx, u, work)
	}
	if err != nil {
		return store.Entry{}, false, err
	}
	return e, executed, nil
}

// execute is Execute with a claim that is answered before the work begins.
func (d *Driver) execute(ctx context.Context, c store.Claim, do work) (e store.Entry, executed bool, err error) {
	forgotten := false
	attempt := func(s *session) (err error) {
		e, executed, err = s.execute(ctx, c, forgotten, do)
		return err
	}
	err = d.session(ctx, attempt)
	if errors.Is(err, errForgotten) {
		forgotten = true
		err = d.session(ctx, attempt)
	}
	if err != nil {
		return store.Entry{}, false, err
	}
	return e, executed, nil
}

func (s *session) execute(ctx context.Context, c store.Claim, forgotten bool, do work) (e store.Entry, executed bool, err error) {
	s.first = s.claim(c, forgotten)
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		e, err = s.lostClaim(ctx, c.Intent, err)
		return e, false, err
	}
	if c.Held != nil {
		c.Held()
	}
	e = store.Entry{ID: c.Intent.ID(), Intent: c.Intent, Token: c.Token}
	var done store.Completion
	err = s.lendBegun(ctx, tx,
		func(ctx context.Context, tx *sql.Tx) (err error) {
			done, err = do(ctx, tx)
			return err
		},
		func() ([]string, error) { return s.store(&e, done) })
	if err != nil {
		return store.Entry{}, false, err
	}
	return s.executed(e, done)
}

// store puts the result into e and returns the statements that store it.
func (s *session) store(e *store.Entry, c store.Completion) ([]string, error) {
	failpoint.Hit("mysql/before-result")
	record.Complete(e, c)
	return s.d.server.completion(*e, c)
}

// executed is the record of an execution whose transaction was committed.
func (s *session) executed(e store.Entry, c store.Completion) (store.Entry, bool, error) {
	e.CompletedAt = record.Time(s.ended.last(0))
	e.ClaimedAt = e.CompletedAt
	body, tombstone := record.Lifetimes(c)
	e.ExpiresAt, e.TombstoneUntil = later(e.CompletedAt, body), later(e.CompletedAt, tombstone)
	return e, true, nil
}

// claim is the begin of a transaction that claims an intent.
func (s *session) claim(c store.Claim, forgotten bool) []string {
	id, i := c.Intent.ID(), c.Intent
	statements := s.d.server.begin()
	if forgotten {
		statements = append(statements, s.d.server.impatient("reprise_ledger", id[:], render(forgetSQL, id[:]))...)
	}
	return append(statements, s.d.server.impatient("reprise_ledger", id[:], render(claimSQL, id[:],
		string(i.Caller), string(i.Operation), string(i.Key), i.Fingerprint[:], c.Token[:]))...)
}

// lostClaim finds out what was in the way of a claim: a record, which is the
// answer, or another attempt.
func (s *session) lostClaim(ctx context.Context, i reprise.Intent, err error) (store.Entry, error) {
	n := number(err)
	if !claimMayBeLost(err) {
		return store.Entry{}, classify(err)
	}
	s.rollback()
	if s.lost {
		return store.Entry{}, fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	found, gone, e, err := s.find(ctx, i)
	switch {
	case err != nil:
		return store.Entry{}, err
	case found && !gone:
		return e, nil
	case gone && n == errDuplicate:
		return store.Entry{}, errForgotten
	case gone:
		// Who holds a record that is past its tombstone is deleting it, table by table. A
		// dirty read can't tell what is left of it from a claim in flight.
		return store.Entry{}, store.ErrBusy
	case n == errDuplicate:
		return store.Entry{}, fmt.Errorf("%w: the record that was in the way is gone", store.ErrConflict)
	}
	return s.inFlight(ctx, i)
}

// inFlight tells the attempt that holds a claim without having committed it from
// one with other content, which is the only thing that a dirty read is good for:
// whether it will commit is not known (rule L6). A cluster's other nodes can't be
// seen into.
func (s *session) inFlight(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	id := i.ID()
	var e store.Entry
	err := s.rows(ctx, func(row []driver.Value) (err error) {
		e, _, err = scanEntry(row)
		return err
	}, "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
		render("SELECT "+headColumns+entryTables+"WHERE l.id = ?", id[:]))
	if err != nil {
		s.lost = true // the level is for one statement, and it is not certain that it was that one
		return store.Entry{}, classify(err)
	}
	if record.Own(e.Intent, i) != nil || e.Intent.Fingerprint == i.Fingerprint || e.State != reprise.StateInProgress {
		return store.Entry{}, store.ErrBusy
	}
	return store.Entry{ID: e.ID, Intent: e.Intent, State: reprise.StateInProgress, Token: e.Token, ClaimedAt: e.ClaimedAt}, nil
}

// completion is the statement that stores a result.
func (s server) completion(e store.Entry, c store.Completion) ([]string, error) {
	if err := fits("a reference", 4096, e.Result.Reference); err != nil {
		return nil, err
	}
	body, tombstone := record.Lifetimes(c)
	next := body
	if e.State == reprise.StateTombstone {
		next = tombstone
	}
	return []string{render(fmt.Sprintf(completeSQL, s.guarded(e)), e.ID[:], string(e.State), header(record.EncodeHeader(e.Result.Header)),
		e.Result.Body, e.Result.Reference, body, tombstone, next)}, nil
}

// fit refuses what would not fit into its column.
func fit(i reprise.Intent) error {
	return errors.Join(
		fits("a caller", 1024, string(i.Caller)), fits("an operation", 1024, string(i.Operation)), fits("a key", 255, string(i.Key)))
}

// find looks the triple of i up. gone says that what was found is past its
// tombstone.
func (s *session) find(ctx context.Context, i reprise.Intent) (found, gone bool, e store.Entry, err error) {
	id := i.ID()
	var now time.Time
	err = s.rows(ctx, func(row []driver.Value) (err error) {
		found = true
		e, now, err = scanEntry(row)
		return err
	}, s.d.server.read(render(findSQL, id[:])))
	if err != nil || !found {
		return false, false, store.Entry{}, classify(err)
	}
	if err := record.Own(e.Intent, i); err != nil {
		return false, false, store.Entry{}, err
	}
	return true, record.Expire(&e, now), e, nil
}

// Find implements store.Ledger.
func (d *Driver) Find(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	id := i.ID()
	entries, err := d.entries(ctx, render(findSQL, id[:]))
	if err != nil {
		return store.Entry{}, err
	}
	if len(entries) == 0 {
		return store.Entry{}, store.ErrNotFound
	}
	if err := record.Own(entries[0].Intent, i); err != nil {
		return store.Entry{}, err
	}
	return entries[0], nil
}

// entries reads records, but for those that are past their tombstone.
func (d *Driver) entries(ctx context.Context, query string) (entries []store.Entry, err error) {
	err = d.query(ctx, func(row []driver.Value) error {
		e, now, err := scanEntry(row)
		if err == nil && !record.Expire(&e, now) {
			entries = append(entries, e)
		}
		return err
	}, query)
	return entries, err
}

// query runs one look-up on a connection of the pool.
func (d *Driver) query(ctx context.Context, row func([]driver.Value) error, query string) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	return classify(record.Query(ctx, d.db, row, d.server.read(query)))
}

// Entries implements store.Ledger.
func (d *Driver) Entries(ctx context.Context, f store.EntryFilter) ([]store.Entry, error) {
	limit := f.Limit
	if limit == 0 {
		limit = 100
	}
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("mysql: EntryFilter.Limit is %d; it is 1 to 1000", f.Limit)
	}
	query := render("SELECT "+headColumns+entryTables+"WHERE l.id > ? "+
		"AND (c.id IS NULL OR c.state = 'unsettled' OR c.tombstone_until > UTC_TIMESTAMP(6))", f.After[:])
	switch f.State {
	case "":
	case reprise.StateTombstone:
		query += " AND (c.state = 'tombstone' OR c.state = 'completed' AND c.expires_at <= UTC_TIMESTAMP(6))"
	case reprise.StateCompleted:
		query += " AND c.state = 'completed' AND c.expires_at > UTC_TIMESTAMP(6)"
	case reprise.StateInProgress:
		query += " AND c.id IS NULL"
	default:
		query += render(" AND c.state = ?", string(f.State))
	}
	return d.entries(ctx, query+render(" ORDER BY l.id LIMIT ?", limit))
}
