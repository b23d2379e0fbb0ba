// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

const (
	// The epoch of a new run is the time, so that a run that was forgotten and began
	// again never meets an owner from its former life.
	beginSQL = "INSERT INTO reprise_run (id, token, input, epoch, drives, lease_until) SELECT id, token, ?, " +
		"LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', claimed_at)), 1, claimed_at + INTERVAL ? MICROSECOND " +
		"FROM reprise_ledger WHERE id = ?"

	takeSQL = "UPDATE reprise_run SET token = ?, epoch = epoch + 1, drives = drives + 1, " +
		"lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND " +
		"WHERE id = ? AND lease_until <= UTC_TIMESTAMP(6)"

	// renewSQL extends a lease, and is the fence in front of every write of a run.
	renewSQL = "UPDATE reprise_run SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND " +
		"WHERE id = ? AND epoch = ? AND lease_until IS NOT NULL"

	// endSQL ends the lease of a run that gets its result.
	endSQL = "UPDATE reprise_run SET lease_until = NULL WHERE id = ?"
)

// Begin implements store.Runs.
func (d *Driver) Begin(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (e store.Entry, owned bool, err error) {
	if err := fit(c.Intent); err != nil {
		return e, false, err
	}
	forgotten := false
	attempt := func(s *session) (err error) {
		e, owned, err = s.begin(ctx, c, input, lease, forgotten)
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
	return e, owned, nil
}

func (s *session) begin(ctx context.Context, c store.Claim, input []byte, lease time.Duration, forgotten bool) (e store.Entry, owned bool, err error) {
	failpoint.Hit("mysql/before-claim")
	id, i := c.Intent.ID(), c.Intent
	statements := append(s.claim(c, forgotten), render(beginSQL, input, lease, id[:]))
	if err := ctx.Err(); err != nil {
		return store.Entry{}, false, err
	}
	s.open = true
	a, err := s.commit(statements...)
	if err != nil {
		e, err = s.lostClaim(ctx, i, err)
		if err != nil || e.State != reprise.StateInProgress || e.Intent.Fingerprint != i.Fingerprint {
			return e, false, err
		}
		return s.takeLapsed(ctx, e, c.Token, lease)
	}
	at := record.Time(a.last(len(statements) - 1))
	return store.Entry{
		ID: id, Intent: i, State: reprise.StateInProgress, Token: c.Token, Input: slices.Clone(input),
		Epoch: at.UnixMicro(), LeaseUntil: later(at, lease), Drives: 1, ClaimedAt: at,
	}, true, nil
}

// takeLapsed takes the run over if its lease has lapsed, and returns the record
// as it is if it hasn't.
func (s *session) takeLapsed(ctx context.Context, before store.Entry, token store.Token, lease time.Duration) (store.Entry, bool, error) {
	e, err := s.take(ctx, before.ID, token, lease)
	if errors.Is(err, store.ErrLeaseLost) {
		return before, false, nil
	}
	return e, err == nil, err
}

// take takes a lapsed run over under a token that nobody had before, so that an
// owner which looks for its claim by token doesn't find this one.
func (s *session) take(ctx context.Context, id reprise.IntentID, token store.Token, lease time.Duration) (e store.Entry, err error) {
	s.open = true
	taken := false
	statements := append(s.d.server.begin(s.d.server.impatient("reprise_run", id[:], render(takeSQL, token[:], lease, id[:]))...),
		render(findSQL+" AND r.token = ?", id[:], token[:]))
	err = s.rows(ctx, func(row []driver.Value) (err error) {
		e, _, err = scanEntry(row)
		taken = true
		return err
	}, statements...)
	if n := number(err); n == errLockWait || n == errNoWait {
		return store.Entry{}, fmt.Errorf("%w: %w", store.ErrBusy, err)
	}
	if err != nil {
		return store.Entry{}, classify(err)
	}
	if !taken {
		return store.Entry{}, store.ErrLeaseLost
	}
	if _, err := s.commit(); err != nil {
		return store.Entry{}, err
	}
	return e, nil
}

// Takeover implements store.Runs.
func (d *Driver) Takeover(ctx context.Context, id reprise.IntentID, lease time.Duration) (e store.Entry, err error) {
	err = d.session(ctx, func(s *session) (err error) {
		e, err = s.take(ctx, id, store.NewToken(), lease)
		return err
	})
	return e, err
}

// Renew implements store.Runs. While a phase of the run is under way, which
// renews the lease itself, it waits for its end.
func (d *Driver) Renew(ctx context.Context, o store.Ownership, lease time.Duration) error {
	return d.session(ctx, func(s *session) error {
		a, err := s.write(render(renewSQL, lease, o.ID[:], o.Epoch))
		return s.fenced(a, err)
	})
}

// fenced is the outcome of statements that begin a transaction and then change
// the row of a run: no row is another owner's.
func (s *session) fenced(a answers, err error) error {
	if err != nil {
		return classify(err)
	}
	if a.affected[s.d.server.beginLen()] == 0 {
		return store.ErrLeaseLost
	}
	return nil
}

// Withdraw implements store.Runs.
func (d *Driver) Withdraw(ctx context.Context, o store.Ownership) error {
	return d.session(ctx, func(s *session) error {
		s.open = true
		err := s.fenced(s.run(ctx, s.d.server.begin(render(renewSQL, 0, o.ID[:], o.Epoch))...))
		if err != nil {
			return err
		}
		steps := 0
		err = s.rows(ctx, func([]driver.Value) error { steps++; return nil },
			render("SELECT seq FROM reprise_step WHERE ledger_id = ? LIMIT 1", o.ID[:]))
		if err != nil {
			return classify(err)
		}
		if steps > 0 {
			return errors.New("mysql: the run has recorded steps and can't be withdrawn; let it be completed")
		}
		_, err = s.commit(render("DELETE FROM reprise_run WHERE id = ?", o.ID[:]), render("DELETE FROM reprise_ledger WHERE id = ?", o.ID[:]))
		return err
	})
}

// Phase implements store.Runs.
func (d *Driver) Phase(ctx context.Context, o store.Ownership, lease time.Duration,
	work func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error),
) error {
	return d.session(ctx, func(s *session) error {
		s.first = s.d.server.begin(render(renewSQL, lease, o.ID[:], o.Epoch))
		tx, err := s.conn.Begin(ctx)
		if err := s.fenced(s.begun, err); err != nil {
			if tx != nil {
				_ = tx.Rollback(ctx)
			}
			return err
		}
		var writes store.PhaseWrites
		return s.lendBegun(ctx, tx,
			func(ctx context.Context, tx *sql.Tx) (err error) {
				writes, err = work(ctx, tx)
				return err
			},
			func() ([]string, error) {
				failpoint.Hit("mysql/before-step")
				return s.phaseWrites(context.WithoutCancel(ctx), o, writes)
			})
	})
}

// phaseWrites are the statements that store what a phase leaves. The row of the
// run is locked, so nobody else writes its steps.
func (s *session) phaseWrites(ctx context.Context, o store.Ownership, w store.PhaseWrites) (statements []string, err error) {
	if w.Step != nil {
		put, err := s.putStep(ctx, o.ID, *w.Step)
		if err != nil {
			return nil, err
		}
		statements = append(statements, put)
	}
	if w.Complete == nil {
		return statements, nil
	}
	e := store.Entry{ID: o.ID, Epoch: o.Epoch}
	record.Complete(&e, *w.Complete)
	last, err := s.d.server.completion(e, *w.Complete)
	if err != nil {
		return nil, err
	}
	statements = append(append(statements, last...), render(endSQL, o.ID[:]))
	if e.State == reprise.StateTombstone {
		// Input and steps hold requests, and answers of other systems; a tombstone
		// doesn't keep them.
		statements = append(statements, render(stepsSQL, o.ID[:]), render("UPDATE reprise_run SET input = NULL WHERE id = ?", o.ID[:]))
	}
	return statements, nil
}

func (s *session) putStep(ctx context.Context, id reprise.IntentID, step store.Step) (string, error) {
	if step.State != store.StepPlanned && step.State != store.StepDone {
		return "", fmt.Errorf("mysql: step %q has state %q; it is planned or done", step.Name, step.State)
	}
	if err := errors.Join(fits("a step's name", 1024, step.Name), fits("a step's key", 255, string(step.Key))); err != nil {
		return "", err
	}
	var state store.StepState
	err := s.rows(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		state = store.StepState(c.Text())
		return c.Err()
	}, render("SELECT state FROM reprise_step WHERE ledger_id = ? AND name = ?", id[:], step.Name))
	switch {
	case err != nil:
		return "", err
	case state == store.StepDone:
		return "", fmt.Errorf("mysql: step %q is done, and what is done is not written again", step.Name)
	case state == store.StepPlanned:
		return render("UPDATE reprise_step SET `key` = ?, state = ?, request = ?, outcome = ?, response = ? WHERE ledger_id = ? AND name = ?",
			string(step.Key), string(step.State), step.Request, step.Outcome.String(), step.Response, id[:], step.Name), nil
	}
	return render("INSERT INTO reprise_step (ledger_id, name, `key`, state, request, outcome, response) VALUES (?, ?, ?, ?, ?, ?, ?)",
		id[:], step.Name, string(step.Key), string(step.State), step.Request, step.Outcome.String(), step.Response), nil
}

// Steps implements store.Runs.
func (d *Driver) Steps(ctx context.Context, id reprise.IntentID) ([]store.Step, error) {
	var steps []store.Step
	err := d.query(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		step, err := c.Step()
		steps = append(steps, step)
		return err
	}, render("SELECT name, `key`, state, request, outcome, response FROM reprise_step WHERE ledger_id = ? ORDER BY seq", id[:]))
	return steps, err
}

// Lapsed implements store.Runs.
func (d *Driver) Lapsed(ctx context.Context, after reprise.IntentID, limit int) ([]store.Entry, error) {
	return d.entries(ctx, render("SELECT "+entryColumns+entryTables+
		"WHERE r.lease_until <= UTC_TIMESTAMP(6) AND r.id > ? ORDER BY r.id LIMIT ?", after[:], limit))
}
