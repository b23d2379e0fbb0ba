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

// Begin implements store.Runs.
func (d *Driver) Begin(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (e store.Entry, owned bool, err error) {
	err = d.writer.do(ctx, func(s *session) error {
		found, prior, err := s.find(c.Intent)
		if err != nil {
			return err
		}
		at := now()
		switch {
		case !found:
			e, owned = begun(c, input, at, lease), true
			err = s.atomic(func() error { return classify(s.replace(e)) })
		case lapsed(prior, at) && prior.Intent.Fingerprint == c.Intent.Fingerprint:
			prior.Token = c.Token
			e, owned = taken(prior, at, lease), true
			err = s.atomic(func() error { return classify(s.take(e)) })
		default:
			e, owned = prior, false
		}
		if err == nil && owned {
			s.prove(e)
		}
		return err
	})
	if err != nil {
		return store.Entry{}, false, err
	}
	return e, owned, nil
}

// begun is the record of a new run. Its epoch is the time, so that a run that
// was forgotten and began again never meets an owner from its former life.
func begun(c store.Claim, input []byte, at time.Time, lease time.Duration) store.Entry {
	return store.Entry{
		ID: c.Intent.ID(), Intent: c.Intent, State: reprise.StateInProgress, Token: c.Token,
		Input: input, Epoch: at.UnixMicro(), LeaseUntil: later(at, lease), Drives: 1, ClaimedAt: at,
	}
}

// taken is e under its next owner.
func taken(e store.Entry, at time.Time, lease time.Duration) store.Entry {
	e.Epoch++
	e.Drives++
	e.LeaseUntil = later(at, lease)
	return e
}

func lapsed(e store.Entry, at time.Time) bool {
	return e.State == reprise.StateInProgress && !at.Before(e.LeaseUntil)
}

// replace inserts e in place of a forgotten record, if there is one.
func (s *session) replace(e store.Entry) error {
	failpoint.Hit("sqlite/before-claim")
	if err := s.forget(e.ID); err != nil {
		return err
	}
	return s.insert(e)
}

func (s *session) take(e store.Entry) error {
	_, err := s.conn.Exec(context.Background(),
		"UPDATE reprise_ledger SET token = ?, epoch = ?, drives = ?, lease_until = ? WHERE id = ?",
		e.Token[:], e.Epoch, e.Drives, micros(e.LeaseUntil), e.ID[:])
	return err
}

// Takeover implements store.Runs.
func (d *Driver) Takeover(ctx context.Context, id reprise.IntentID, lease time.Duration) (e store.Entry, err error) {
	err = d.writer.do(ctx, func(s *session) error {
		found := false
		err := s.conn.Query(context.Background(), func(row []driver.Value) (err error) {
			e, err = scanEntry(row)
			found = true
			return err
		}, findSQL, id[:])
		if err != nil {
			return classify(err)
		}
		at := now()
		if !found || !lapsed(e, at) {
			return store.ErrLeaseLost
		}
		// An owner that looks for its claim by token must not find this one's.
		e.Token = store.NewToken()
		e = taken(e, at, lease)
		return s.atomic(func() error { return classify(s.take(e)) })
	})
	if err != nil {
		return store.Entry{}, err
	}
	return e, nil
}

// Renew implements store.Runs.
func (d *Driver) Renew(ctx context.Context, o store.Ownership, lease time.Duration) error {
	return d.writer.do(ctx, func(s *session) error {
		return s.atomic(func() error { return s.renew(o, lease) })
	})
}

// renew extends a lease, and is the fence in front of every write of a run.
func (s *session) renew(o store.Ownership, lease time.Duration) error {
	n, err := s.conn.Exec(context.Background(),
		"UPDATE reprise_ledger SET lease_until = ? WHERE id = ? AND epoch = ? AND state = 'in_progress'",
		now().Add(lease).UnixMicro(), o.ID[:], o.Epoch)
	if err != nil {
		return classify(err)
	}
	if n == 0 {
		return store.ErrLeaseLost
	}
	return nil
}

// Withdraw implements store.Runs.
func (d *Driver) Withdraw(ctx context.Context, o store.Ownership) error {
	return d.writer.do(ctx, func(s *session) error {
		return s.atomic(func() error {
			if err := s.renew(o, 0); err != nil {
				return err
			}
			steps := 0
			err := s.conn.Query(context.Background(), func([]driver.Value) error { steps++; return nil },
				"SELECT 1 FROM reprise_step WHERE ledger_id = ? LIMIT 1", o.ID[:])
			if err != nil {
				return classify(err)
			}
			if steps > 0 {
				return errors.New("sqlite: the run has recorded steps and can't be withdrawn; let it be completed")
			}
			return classify(s.forget(o.ID))
		})
	})
}

// Phase implements store.Runs.
func (d *Driver) Phase(ctx context.Context, o store.Ownership, lease time.Duration,
	work func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error),
) error {
	return d.writer.do(ctx, func(s *session) error {
		var writes store.PhaseWrites
		return s.lend(ctx,
			func(ctx context.Context, tx *sql.Tx) (err error) {
				if err := s.renew(o, lease); err != nil {
					return err
				}
				writes, err = work(ctx, tx)
				return err
			},
			func() error {
				failpoint.Hit("sqlite/before-step")
				return s.write(o, writes)
			})
	})
}

// write stores what a phase leaves.
func (s *session) write(o store.Ownership, w store.PhaseWrites) error {
	if w.Step != nil {
		if err := s.putStep(o.ID, *w.Step); err != nil {
			return err
		}
	}
	if w.Complete == nil {
		return nil
	}
	var e store.Entry
	complete(&e, *w.Complete)
	n, err := s.conn.Exec(context.Background(),
		"UPDATE reprise_ledger SET state = ?, status = ?, headers = ?, body = ?, reference = ?, lease_until = NULL, "+
			"completed_at = ?, expires_at = ?, tombstone_until = ? WHERE id = ? AND epoch = ? AND state = 'in_progress'",
		string(e.State), e.Result.Status, header(record.EncodeHeader(e.Result.Header)), nullable(e.Result.Body), e.Result.Reference,
		micros(e.CompletedAt), micros(e.ExpiresAt), micros(e.TombstoneUntil), o.ID[:], o.Epoch)
	switch {
	case err != nil:
		return err
	case n == 0:
		return store.ErrLeaseLost
	case e.State == reprise.StateTombstone:
		return s.strip(o.ID)
	}
	return nil
}

// strip takes from a tombstone what a tombstone doesn't keep: input and steps
// hold requests, and answers of other systems.
func (s *session) strip(id reprise.IntentID) error {
	return s.eachWith(id, "DELETE FROM reprise_step WHERE ledger_id = ?", "UPDATE reprise_ledger SET input = NULL WHERE id = ?")
}

func (s *session) putStep(id reprise.IntentID, step store.Step) error {
	if step.State != store.StepPlanned && step.State != store.StepDone {
		return fmt.Errorf("sqlite: step %q has state %q; it is planned or done", step.Name, step.State)
	}
	n, err := s.conn.Exec(context.Background(),
		"INSERT INTO reprise_step (ledger_id, name, key, state, request, outcome, response) VALUES (?, ?, ?, ?, ?, ?, ?) "+
			"ON CONFLICT (ledger_id, name) DO UPDATE SET key = excluded.key, state = excluded.state, "+
			"request = excluded.request, outcome = excluded.outcome, response = excluded.response "+
			"WHERE reprise_step.state = 'planned'",
		id[:], step.Name, string(step.Key), string(step.State), nullable(step.Request), step.Outcome.String(), nullable(step.Response))
	if err == nil && n == 0 {
		return fmt.Errorf("sqlite: step %q is done, and what is done is not written again", step.Name)
	}
	return err
}

// Steps implements store.Runs.
func (d *Driver) Steps(ctx context.Context, id reprise.IntentID) ([]store.Step, error) {
	var steps []store.Step
	err := d.read(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		step, err := c.Step()
		steps = append(steps, step)
		return err
	}, "SELECT name, key, state, request, outcome, response FROM reprise_step WHERE ledger_id = ? ORDER BY seq", id[:])
	return steps, err
}

// Lapsed implements store.Runs.
func (d *Driver) Lapsed(ctx context.Context, after reprise.IntentID, limit int) ([]store.Entry, error) {
	return queryEntries(ctx, d.read, "SELECT "+entryColumns+" FROM reprise_ledger "+
		"WHERE state = 'in_progress' AND lease_until <= ? AND id > ? ORDER BY id LIMIT ?",
		now().UnixMicro(), after[:], limit)
}
