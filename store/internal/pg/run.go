// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

const (
	beginSQL = `INSERT INTO reprise_ledger (claimed_at, lease_until, epoch, drives, id, token, state, fingerprint, caller, operation, key, input)
SELECT at, at + $1::bigint * interval '1 microsecond', nextval('reprise_epoch'), 1,
	$2::uuid, $3::uuid, 'in_progress', $4::bytea, $5::text, $6::text, $7::text, $8::bytea
FROM (SELECT clock_timestamp() AS at OFFSET 0) AS now
RETURNING ` + entryColumns

	// takeSQL leaves alone a row that is locked: its owner is inside a phase.
	takeSQL = `UPDATE reprise_ledger SET epoch = epoch + 1, drives = drives + 1, token = $3::uuid,
	lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE id = (SELECT id FROM reprise_ledger WHERE id = $1::uuid AND state = 'in_progress' AND lease_until <= clock_timestamp()
	AND ($4::bytea IS NULL OR fingerprint = $4::bytea) FOR UPDATE SKIP LOCKED)
RETURNING ` + entryColumns

	renewSQL = `UPDATE reprise_ledger SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE id = $1::uuid AND epoch = $2::bigint AND state = 'in_progress'`
)

func one(ctx context.Context, conn Conn, e *store.Entry, query string, args ...any) (found bool, err error) {
	err = conn.Query(ctx, query, func(scan Scan) (err error) {
		found = true
		*e, _, err = scanEntry(scan)
		return err
	}, args...)
	return found, err
}

// Begin implements store.Runs.
func (c *Core) Begin(ctx context.Context, claim store.Claim, input []byte, lease time.Duration) (e store.Entry, owned bool, err error) {
	if err := CheckIntent(claim.Intent); err != nil {
		return store.Entry{}, false, err
	}
	err = c.write(ctx, func(conn Conn) (err error) {
		e, owned, err = begin(ctx, conn, claim, input, lease)
		return err
	})
	if Taken(err) {
		err = fmt.Errorf("%w: %w", store.ErrBusy, err)
	}
	if err == nil && !owned {
		err = Settled(ctx, c, e)
	}
	if err != nil {
		return store.Entry{}, false, err
	}
	return e, owned, nil
}

func begin(ctx context.Context, conn Conn, claim store.Claim, input []byte, lease time.Duration) (e store.Entry, owned bool, err error) {
	id := claim.Intent.ID()
	free := false
	err = conn.Query(ctx, trySQL, func(scan Scan) error { return scan(&free) }, lockOf(id))
	if err != nil {
		return e, false, err
	}
	if !free {
		return e, false, store.ErrBusy
	}
	token, content := hex.EncodeToString(claim.Token[:]), claim.Intent.Fingerprint[:]
	e, gone, err := find(ctx, conn, id)
	switch {
	case err == nil && gone:
		if err := Forget(ctx, conn, id); err != nil {
			return e, false, err
		}
	case err == nil:
		if err := record.Own(e.Intent, claim.Intent); err != nil || e.State != reprise.StateInProgress {
			return e, false, err
		}
		owned, err = one(ctx, conn, &e, takeSQL, hexID(id), lease.Microseconds(), token, content)
		return e, owned, err
	case !errors.Is(err, store.ErrNotFound):
		return e, false, err
	}
	owned, err = one(ctx, conn, &e, beginSQL, lease.Microseconds(), hexID(id), token, content,
		string(claim.Intent.Caller), string(claim.Intent.Operation), string(claim.Intent.Key), data(input))
	return e, owned, err
}

// Takeover implements store.Runs.
func (c *Core) Takeover(ctx context.Context, id reprise.IntentID, lease time.Duration) (e store.Entry, err error) {
	// An owner that looks for its claim by token must not find this one's.
	token := store.NewToken()
	err = c.write(ctx, func(conn Conn) error {
		found, err := one(ctx, conn, &e, takeSQL, hexID(id), lease.Microseconds(), hex.EncodeToString(token[:]), nil)
		if err == nil && !found {
			err = store.ErrLeaseLost
		}
		return err
	})
	if err != nil {
		return store.Entry{}, err
	}
	return e, nil
}

// Renew implements store.Runs.
func (c *Core) Renew(ctx context.Context, o store.Ownership, lease time.Duration) error {
	return c.write(ctx, func(conn Conn) error { return Fence(ctx, conn, o, lease) })
}

// Fence extends a lease, or fails with store.ErrLeaseLost: it stands in front of
// every write of a run, and keeps the run locked until the transaction ends.
func Fence(ctx context.Context, conn Conn, o store.Ownership, lease time.Duration) error {
	n, err := conn.Exec(ctx, renewSQL, hexID(o.ID), o.Epoch, lease.Microseconds())
	if err == nil && n == 0 {
		err = store.ErrLeaseLost
	}
	return err
}

// FenceText is Fence for the simple protocol; its count is 0 if the lease is lost.
func FenceText(o store.Ownership, lease time.Duration) string {
	return inline(renewSQL, quoteUUID(nil, o.ID), quoteInt(nil, o.Epoch), quoteInt(nil, lease.Microseconds()))
}

// Withdraw implements store.Runs.
func (c *Core) Withdraw(ctx context.Context, o store.Ownership) error {
	return c.write(ctx, func(conn Conn) error {
		if err := Fence(ctx, conn, o, 0); err != nil {
			return err
		}
		n, err := conn.Exec(ctx, "DELETE FROM reprise_ledger WHERE id = $1::uuid AND NOT EXISTS "+
			"(SELECT FROM reprise_step WHERE ledger_id = $1::uuid)", hexID(o.ID))
		if err == nil && n == 0 {
			err = errors.New("postgres: the run has recorded steps and can't be withdrawn; let it be completed")
		}
		return err
	})
}

// WritePhase stores what a phase leaves, behind its Fence and in its transaction.
func WritePhase(ctx context.Context, conn Conn, o store.Ownership, w store.PhaseWrites) error {
	if w.Step != nil {
		if err := putStep(ctx, conn, o.ID, *w.Step); err != nil {
			return err
		}
	}
	if w.Complete == nil {
		return nil
	}
	done := &Completion{Entry: store.Entry{State: reprise.StateCompleted, Result: w.Complete.Result}}
	if err := done.set(*w.Complete); err != nil {
		return err
	}
	r := done.Entry.Result
	n, err := conn.Exec(ctx, `UPDATE reprise_ledger SET state = $3::text::reprise_state, status = $4::bigint, headers = $5::text, body = $6::bytea,
		reference = $7::text, lease_until = NULL, completed_at = at, expires_at = at + $8::bigint * interval '1 microsecond',
		tombstone_until = at + $9::bigint * interval '1 microsecond', due_at = at + $10::bigint * interval '1 microsecond',
		input = CASE WHEN $3::text = 'tombstone' THEN NULL ELSE input END
		FROM (SELECT clock_timestamp() AS at OFFSET 0) AS now
		WHERE id = $1::uuid AND epoch = $2::bigint AND state = 'in_progress'`,
		hexID(o.ID), o.Epoch, string(done.Entry.State), int64(r.Status), text(done.header), data(r.Body), r.Reference,
		done.retention, done.tombstone, done.due())
	switch {
	case err != nil:
		return err
	case n == 0:
		return store.ErrLeaseLost
	case done.Entry.State == reprise.StateTombstone:
		// Steps hold requests, and answers of other systems.
		_, err = conn.Exec(ctx, forgetStepsSQL, hexID(o.ID))
	}
	return err
}

func putStep(ctx context.Context, conn Conn, id reprise.IntentID, step store.Step) error {
	if step.State != store.StepPlanned && step.State != store.StepDone {
		return fmt.Errorf("postgres: step %q has state %q; it is planned or done", step.Name, step.State)
	}
	n, err := conn.Exec(ctx, `INSERT INTO reprise_step AS old (ledger_id, name, key, state, request, outcome, response)
		VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::text, $7::bytea)
		ON CONFLICT (ledger_id, name) DO UPDATE SET key = excluded.key, state = excluded.state, request = excluded.request,
		outcome = excluded.outcome, response = excluded.response WHERE old.state = 'planned'`,
		hexID(id), step.Name, string(step.Key), string(step.State), data(step.Request), step.Outcome.String(), data(step.Response))
	if err == nil && n == 0 {
		err = fmt.Errorf("postgres: step %q is done, and what is done is not written again", step.Name)
	}
	return err
}

// Steps implements store.Runs.
func (c *Core) Steps(ctx context.Context, id reprise.IntentID) (steps []store.Step, err error) {
	err = c.read(ctx, func(conn Conn) error {
		steps = nil
		return conn.Query(ctx, "SELECT name, key, state, request, outcome, response FROM reprise_step WHERE ledger_id = $1::uuid ORDER BY seq",
			func(scan Scan) error {
				var s store.Step
				var key, state, outcome string
				if err := scan(&s.Name, &key, &state, &s.Request, &outcome, &s.Response); err != nil {
					return err
				}
				s.Key, s.State = reprise.Key(key), store.StepState(state)
				steps = append(steps, s)
				return steps[len(steps)-1].Outcome.UnmarshalText([]byte(outcome))
			}, hexID(id))
	})
	return steps, err
}

// Lapsed implements store.Runs.
func (c *Core) Lapsed(ctx context.Context, after reprise.IntentID, limit int) (entries []store.Entry, err error) {
	err = c.read(ctx, func(conn Conn) error {
		entries = nil
		return conn.Query(ctx, "SELECT "+entryColumns+" FROM reprise_ledger WHERE state = 'in_progress' "+
			"AND lease_until <= statement_timestamp() AND id > $1::uuid ORDER BY id LIMIT $2::bigint", func(scan Scan) error {
			e, _, err := scanEntry(scan)
			entries = append(entries, e)
			return err
		}, hexID(after), int64(limit))
	})
	return entries, err
}
