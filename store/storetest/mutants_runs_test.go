// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

const (
	openRun = "UPDATE reprise_ledger SET state = 'in_progress', lease_until = unixepoch() * 1000000 + 3600000000 WHERE id = ? AND epoch = ?"
	epochOf = "SELECT epoch FROM reprise_ledger WHERE id = ? AND state = 'in_progress'"
)

// current returns the holding that is in force, whatever the caller holds.
func (s *sabotage) current(o store.Ownership) store.Ownership {
	var epoch int64
	if err := s.db.QueryRow(epochOf, o.ID[:]).Scan(&epoch); err == nil {
		if o.Epoch != epoch {
			s.fired.Add(1)
		}
		o.Epoch = epoch
	}
	return o
}

func runMutants() []mutant {
	return []mutant{
		{
			name:   "the input of a run is not stored",
			breaks: []string{"S1_claim_is_on_disk_before_any_call", "S3_lapsed_lease_is_taken_over"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
					s.fired.Add(1)
					e, owned, err := d.Begin(ctx, c, nil, lease)
					if owned {
						e.Input = input
					}
					return e, owned, err
				}}
			},
		},
		{
			name:   "a claim is written when the run ends",
			breaks: []string{"S1_claim_is_on_disk_before_any_call"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
					e, owned, err := d.Begin(ctx, c, input, lease)
					if owned {
						s.exec("DELETE FROM reprise_ledger WHERE id = ?", e.ID[:])
					}
					return e, owned, err
				}}
			},
		},
		{
			name:   "a second begin takes a running lease",
			breaks: []string{"S1_second_begin_does_not_own", "S1_concurrent_begins_have_one_owner", "S3_lease_is_kept_while_it_is_renewed"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
					s.exec("UPDATE reprise_ledger SET lease_until = 0 WHERE state = 'in_progress'")
					return d.Begin(ctx, c, input, lease)
				}}
			},
		},
		{
			name:   "begin owns whatever it finds",
			breaks: []string{"S1_begin_does_not_own_what_is_completed", "S1_second_begin_does_not_own"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
					e, _, err := d.Begin(ctx, c, input, lease)
					s.fired.Add(1)
					return e, err == nil, err
				}}
			},
		},
		{
			name:   "a takeover looks first and then takes without looking again",
			breaks: []string{"S2_concurrent_takeovers_have_one_owner"},
			wrap:   takesWithoutLooking,
		},
		{
			name:   "a takeover stays in the epoch",
			breaks: []string{"S2_zombie_writes_nothing", "S2_concurrent_takeovers_have_one_owner", "S3_lapsed_lease_is_taken_over"},
			wrap:   staysInEpoch,
		},
		{
			name:   "the epoch is not checked",
			breaks: []string{"S2_zombie_writes_nothing", "S2_epoch_is_never_given_out_twice", "L2_random_histories_follow_the_state_machine"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{
					driver: d,
					renew: func(ctx context.Context, o store.Ownership, lease time.Duration) error {
						return d.Renew(ctx, s.current(o), lease)
					},
					withdraw: func(ctx context.Context, o store.Ownership) error { return d.Withdraw(ctx, s.current(o)) },
					phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
						return d.Phase(ctx, s.current(o), lease, work)
					},
				}
			},
		},
		{
			name:   "every new run begins in epoch 1",
			breaks: []string{"S2_epoch_is_never_given_out_twice"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
					e, owned, err := d.Begin(ctx, c, input, lease)
					if owned && e.Drives == 1 {
						s.exec("UPDATE reprise_ledger SET epoch = 1 WHERE id = ?", e.ID[:])
						e.Epoch = 1
					}
					return e, owned, err
				}}
			},
		},
		{
			name:   "a takeover leaves the token of the former owner",
			breaks: []string{"S2_takeover_has_a_token_of_its_own"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, takeover: func(ctx context.Context, id reprise.IntentID, lease time.Duration) (store.Entry, error) {
					var token []byte
					_ = s.db.QueryRow("SELECT token FROM reprise_ledger WHERE id = ?", id[:]).Scan(&token)
					e, err := d.Takeover(ctx, id, lease)
					if err == nil {
						s.exec("UPDATE reprise_ledger SET token = ? WHERE id = ?", token, id[:])
						e.Token = store.Token(token)
					}
					return e, err
				}}
			},
		},
		{
			name:   "a step that is done is written again",
			breaks: []string{"S4_done_step_is_never_written_again"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
					return d.Phase(ctx, o, lease, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
						w, err := work(ctx, tx)
						if w.Step != nil {
							if r, _ := tx.ExecContext(ctx, "UPDATE reprise_step SET state = 'planned' WHERE ledger_id = ? AND name = ? AND state = 'done'", o.ID[:], w.Step.Name); r != nil {
								n, _ := r.RowsAffected()
								s.fired.Add(n)
							}
						}
						return w, err
					})
				}}
			},
		},
		{
			name:   "an owner is sent away when its lease has lapsed",
			breaks: []string{"S2_lapsed_owner_that_nobody_replaced_goes_on"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, renew: func(ctx context.Context, o store.Ownership, lease time.Duration) error {
					lapsed, err := d.Lapsed(ctx, reprise.IntentID{}, 1000)
					if slices.ContainsFunc(lapsed, func(e store.Entry) bool { return e.ID == o.ID }) {
						s.fired.Add(1)
						err = store.ErrLeaseLost
					}
					return errors.Join(err, d.Renew(ctx, o, lease))
				}}
			},
		},
		{
			name:   "a renewal changes nothing",
			breaks: []string{"S3_lease_is_kept_while_it_is_renewed"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, renew: func(context.Context, store.Ownership, time.Duration) error {
					s.fired.Add(1)
					return nil
				}}
			},
		},
		{
			name: "other content takes a lapsed run over",
			breaks: []string{
				"S6_other_content_never_takes_over", "L2_random_histories_follow_the_state_machine",
			},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
					if e, err := d.Find(ctx, c.Intent); err == nil && e.Intent != c.Intent {
						s.fired.Add(1)
						c.Intent = e.Intent
					}
					return d.Begin(ctx, c, input, lease)
				}}
			},
		},
		{
			name:   "recovery is offered runs that are leased",
			breaks: []string{"S6_lapsed_lists_exactly_what_recovery_must_drive"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, lapsed: func(ctx context.Context, after reprise.IntentID, limit int) ([]store.Entry, error) {
					s.fired.Add(1)
					return d.Entries(ctx, store.EntryFilter{State: reprise.StateInProgress, After: after, Limit: limit})
				}}
			},
		},
		{
			name:   "recovery sees the first page only",
			breaks: []string{"S6_lapsed_lists_exactly_what_recovery_must_drive"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, lapsed: func(ctx context.Context, after reprise.IntentID, limit int) ([]store.Entry, error) {
					if after != (reprise.IntentID{}) {
						s.fired.Add(1)
						return nil, nil
					}
					return d.Lapsed(ctx, after, limit)
				}}
			},
		},
		{
			name:   "a run with steps can be withdrawn",
			breaks: []string{"S8_withdrawn_run_leaves_nothing", "L2_random_histories_follow_the_state_machine"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, withdraw: func(ctx context.Context, o store.Ownership) error {
					s.exec("DELETE FROM reprise_step WHERE ledger_id = ?", o.ID[:])
					return d.Withdraw(ctx, o)
				}}
			},
		},
		{
			name:   "steps come back in the order of their names",
			breaks: []string{"S4_steps_keep_order_state_and_bytes"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, steps: func(ctx context.Context, id reprise.IntentID) ([]store.Step, error) {
					steps, err := d.Steps(ctx, id)
					s.fired.Add(1)
					slices.SortFunc(steps, func(a, b store.Step) int { return int(a.Name[0]) - int(b.Name[0]) + len(a.Name) - len(b.Name) })
					slices.Reverse(steps)
					return steps, err
				}}
			},
		},
		{
			name:   "the evidence of a step is not stored",
			breaks: []string{"S4_steps_keep_order_state_and_bytes", "L2_random_histories_follow_the_state_machine"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
					return d.Phase(ctx, o, lease, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
						w, err := work(ctx, tx)
						if w.Step != nil {
							s.fired.Add(1)
							bare := *w.Step
							bare.Outcome, bare.Response = reprise.Unknown, nil
							w.Step = &bare
						}
						return w, err
					})
				}}
			},
		},
		{
			name:       "steps are never deleted",
			breaks:     []string{"S4_new_run_has_no_steps_of_an_old_one"},
			statements: []string{"CREATE TRIGGER IF NOT EXISTS keep_steps BEFORE DELETE ON reprise_step BEGIN SELECT RAISE(IGNORE); END"},
		},
		{
			name:   "a completed run can be completed again",
			breaks: []string{"S5_completed_is_final"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
					s.exec(openRun, o.ID[:], o.Epoch)
					return d.Phase(ctx, o, lease, work)
				}}
			},
		},
		{
			name:   "an unfinished run is completed by its age",
			breaks: []string{"L9_purge_never_touches_unfinished_work"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, purge: func(ctx context.Context, limit int) (int, error) {
					s.exec("UPDATE reprise_ledger SET state = 'completed', completed_at = claimed_at, expires_at = claimed_at, tombstone_until = claimed_at WHERE state = 'in_progress'")
					return d.Purge(ctx, limit)
				}}
			},
		},
	}
}

// takesWithoutLooking is sure of a run that had lapsed when it looked.
func takesWithoutLooking(d driver, s *sabotage) driver {
	hadLapsed := func(ctx context.Context, id reprise.IntentID) (store.Entry, bool) {
		lapsed, _ := d.Lapsed(ctx, reprise.IntentID{}, 1000)
		time.Sleep(5 * time.Millisecond) // The database is some way off.
		if n := slices.IndexFunc(lapsed, func(e store.Entry) bool { return e.ID == id }); n >= 0 {
			return lapsed[n], true
		}
		return store.Entry{}, false
	}
	return brokenRuns{
		driver: d,
		begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
			_, lapsed := hadLapsed(ctx, c.Intent.ID())
			e, owned, err := d.Begin(ctx, c, input, lease)
			if lapsed && !owned && err == nil {
				s.fired.Add(1)
				owned = true
			}
			return e, owned, err
		},
		takeover: func(ctx context.Context, id reprise.IntentID, lease time.Duration) (store.Entry, error) {
			before, lapsed := hadLapsed(ctx, id)
			e, err := d.Takeover(ctx, id, lease)
			if lapsed && errors.Is(err, store.ErrLeaseLost) {
				s.fired.Add(1)
				return before, nil
			}
			return e, err
		},
	}
}

// staysInEpoch takes a run over, without a new epoch.
func staysInEpoch(d driver, s *sabotage) driver {
	back := func(e store.Entry) store.Entry {
		s.exec("UPDATE reprise_ledger SET epoch = epoch - 1 WHERE id = ?", e.ID[:])
		e.Epoch--
		return e
	}
	return brokenRuns{
		driver: d,
		begin: func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
			e, owned, err := d.Begin(ctx, c, input, lease)
			if owned && e.Drives > 1 {
				e = back(e)
			}
			return e, owned, err
		},
		takeover: func(ctx context.Context, id reprise.IntentID, lease time.Duration) (store.Entry, error) {
			e, err := d.Takeover(ctx, id, lease)
			if err == nil {
				e = back(e)
			}
			return e, err
		},
	}
}
