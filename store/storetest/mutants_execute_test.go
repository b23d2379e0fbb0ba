// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// atomicWork is the work of Execute.
type atomicWork = func(ctx context.Context, tx *sql.Tx) (store.Completion, error)

func executeMutants() []mutant {
	return []mutant{
		{
			name: "no record is stored",
			breaks: []string{
				"L1_absent_intent_executes_once", "L3_record_and_effects_commit_together", "L7_resolve_finds_what_was_committed",
			},
			wrap: storesNothing,
		},
		{
			name: "the look-up and the claim are two steps and nothing is unique",
			breaks: []string{
				"L1_concurrent_attempts_on_one_driver_commit_once", "L1_concurrent_attempts_on_two_drivers_commit_once",
				"L6_concurrent_attempts_with_two_contents_commit_once",
			},
			wrap: claimsWithoutUniqueness,
		},
		{
			name:   "a first attempt is executed without a look-up",
			breaks: []string{"L1_number_of_the_attempt_decides_nothing", "L1_absent_intent_executes_once", "L1_repeated_work_counts_for_nothing"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
					if c.Number == 1 {
						s.exec("DELETE FROM reprise_ledger WHERE id = ?", idOf(c))
					}
					return d.Execute(ctx, c, work)
				}}
			},
		},
		{
			name:   "nobody is told that the intent is held",
			breaks: []string{"L1_claim_is_announced_before_the_effect"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
					s.fired.Add(1)
					c.Held = nil
					return d.Execute(ctx, c, work)
				}}
			},
		},
		{
			name:   "what the work of a repeat returns is the answer",
			breaks: []string{"L1_repeated_work_counts_for_nothing"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
					if e, err := d.Find(ctx, c.Intent); err == nil {
						s.fired.Add(1)
						_, err := work(ctx, nil)
						return e, false, err
					}
					return d.Execute(ctx, c, work)
				}}
			},
		},
		{
			name: "a driver holds on to its lock when the handler's goroutine ends",
			breaks: []string{
				"L3_execute_keeps_nothing_after_an_exit_of_its_goroutine", "L3_phase_keeps_nothing_after_an_exit_of_its_goroutine",
				"L3_transact_keeps_nothing_after_an_exit_of_its_goroutine",
			},
			wrap: staysLocked,
		},
		{
			name:   "the lock has the same name for every key",
			breaks: []string{"L1_different_intents_do_not_exclude_each_other"},
			wrap:   oneLockForAll,
		},
		{
			name:   "records are kept in the memory of the process",
			breaks: []string{"L2_record_survives_the_process", "L1_concurrent_attempts_on_two_drivers_commit_once"},
			wrap:   remembersInMemory,
		},
		{
			name:   "the result is stored in a second transaction",
			breaks: []string{"L3_effect_and_record_become_visible_together"},
			wrap:   storesResultAfterwards,
		},
		{
			name:   "the claim is kept on an error",
			breaks: []string{"L12_next_attempt_runs_at_once", "L3_execute_keeps_nothing_after_an_error", "L7_resolve_is_certain_that_nothing_was_kept"},
			wrap:   keepsClaim,
		},
		{
			name:   "one failure fails the whole batch",
			breaks: []string{"L12_failure_does_not_touch_its_neighbours"},
			wrap:   sharesFate,
		},
		{
			name:   "the wait for the transaction ignores the context",
			breaks: []string{"L11_wait_is_bounded_by_the_context"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
					s.fired.Add(1)
					return d.Execute(context.WithoutCancel(ctx), c, work)
				}}
			},
		},
		{
			name:   "a caller that is gone is told that nothing was committed",
			breaks: []string{"L13_cancelled_after_its_work_is_still_committed", "L13_cancellation_is_answered_truthfully"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
					e, executed, err := d.Execute(context.WithoutCancel(ctx), c, work)
					if ctx.Err() != nil {
						s.fired.Add(1)
						return store.Entry{}, false, ctx.Err()
					}
					return e, executed, err
				}}
			},
		},
		{
			name: "a handler that fails commits what it did",
			breaks: []string{
				"L3_execute_keeps_nothing_after_an_error", "L3_execute_keeps_nothing_after_a_panic", "L3_execute_keeps_nothing_after_an_ended_context",
				"L3_phase_keeps_nothing_after_an_error", "L3_phase_keeps_nothing_after_a_panic", "L3_phase_keeps_nothing_after_an_ended_context",
				"L3_transact_keeps_nothing_after_an_error", "L3_transact_keeps_nothing_after_a_panic", "L3_transact_keeps_nothing_after_an_ended_context",
				"S4_failed_phase_leaves_the_steps_alone", "O1_rolled_back_messages_never_appear", "I5_rolled_back_effect_leaves_no_receipt",
			},
			wrap: commitsFailures,
		},
		{
			name: "misuse of the handle is reported as success",
			breaks: []string{
				"L10_execute_refuses_commit_through_the_handle", "L10_execute_refuses_rollback_through_the_handle",
				"L10_execute_refuses_commit_and_rollback_in_sql_text", "L10_execute_is_poisoned_by_a_failed_statement",
				"L10_phase_refuses_commit_through_the_handle", "L10_phase_refuses_rollback_through_the_handle",
				"L10_phase_refuses_commit_and_rollback_in_sql_text", "L10_phase_is_poisoned_by_a_failed_statement",
				"L10_transact_refuses_commit_through_the_handle", "L10_transact_refuses_rollback_through_the_handle",
				"L10_transact_refuses_commit_and_rollback_in_sql_text", "L10_transact_is_poisoned_by_a_failed_statement",
			},
			wrap: forgivesMisuse,
		},
		{
			name: "the handle of a transaction is not guarded",
			breaks: []string{
				"L10_transact_refuses_commit_through_the_handle", "L10_transact_refuses_rollback_through_the_handle",
				"L10_transact_refuses_commit_and_rollback_in_sql_text", "L10_transact_is_poisoned_by_a_failed_statement",
				"L10_retained_handle_is_dead",
			},
			wrap: guardsNothing,
		},
	}
}

func idOf(c store.Claim) []byte {
	id := c.Intent.ID()
	return id[:]
}

// staysLocked runs one handler at a time behind a lock that it gives back when
// the handler returns or panics, and only then.
func staysLocked(d driver, s *sabotage) driver {
	lock := make(chan struct{}, 1)
	guard := func(ctx context.Context, work func() error) error {
		select {
		case lock <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.fired.Add(1)
		recovered, err := call(work)
		<-lock
		if recovered != nil {
			panic(recovered)
		}
		return err
	}
	return brokenRuns{
		driver: broken{
			driver: d,
			execute: func(ctx context.Context, c store.Claim, work atomicWork) (e store.Entry, executed bool, err error) {
				err = guard(ctx, func() (err error) { e, executed, err = d.Execute(ctx, c, work); return err })
				return e, executed, err
			},
			transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
				return guard(ctx, func() error { return d.Transact(ctx, work) })
			},
		},
		phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
			return guard(ctx, func() error { return d.Phase(ctx, o, lease, work) })
		},
	}
}

// storesNothing executes every attempt.
func storesNothing(d driver, s *sabotage) driver {
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		s.fired.Add(1)
		e := store.Entry{ID: c.Intent.ID(), Intent: c.Intent, Token: c.Token, State: reprise.StateCompleted}
		err := d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
			done, err := work(ctx, tx)
			e.Result = done.Result
			return err
		})
		return e, err == nil, err
	}}
}

// claimsWithoutUniqueness looks up, and then inserts a record that never
// collides with another one of its intent.
func claimsWithoutUniqueness(d driver, s *sabotage) driver {
	found := func(i reprise.Intent) (reprise.Intent, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		alias, ok := s.memory[i.ID()].(reprise.Intent)
		return alias, ok
	}
	find := func(ctx context.Context, i reprise.Intent) (store.Entry, error) {
		alias, ok := found(i)
		if !ok {
			return store.Entry{}, store.ErrNotFound
		}
		e, err := d.Find(ctx, alias)
		e.Intent, e.ID = i, i.ID()
		return e, err
	}
	return broken{driver: d, find: find, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		if e, err := find(ctx, c.Intent); err == nil {
			return e, false, nil
		}
		i := c.Intent
		c.Intent.Key = reprise.NewKey()
		e, executed, err := d.Execute(ctx, c, work)
		if err == nil {
			s.fired.Add(1)
			s.mu.Lock()
			s.memory[i.ID()] = c.Intent
			s.mu.Unlock()
		}
		e.Intent, e.ID = i, i.ID()
		return e, executed, err
	}}
}

// oneLockForAll lets concurrent attempts share one flight, whatever they ask for.
func oneLockForAll(d driver, s *sabotage) driver {
	type flight struct {
		done chan struct{}
		e    store.Entry
		err  error
	}
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		s.mu.Lock()
		if f, ok := s.memory["flight"].(*flight); ok {
			s.mu.Unlock()
			s.fired.Add(1)
			<-f.done
			return f.e, false, f.err
		}
		f := &flight{done: make(chan struct{})}
		s.memory["flight"] = f
		s.mu.Unlock()
		var executed bool
		f.e, executed, f.err = d.Execute(ctx, c, work)
		s.mu.Lock()
		delete(s.memory, "flight")
		s.mu.Unlock()
		close(f.done)
		return f.e, executed, f.err
	}}
}

// remembersInMemory is a ledger in a map; another process has another one.
func remembersInMemory(d driver, s *sabotage) driver {
	local := &sabotage{memory: map[any]any{}}
	inner := storesNothing(d, s)
	return broken{
		driver: d,
		execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
			local.mu.Lock()
			defer local.mu.Unlock()
			if e, ok := local.memory[c.Intent.ID()].(store.Entry); ok {
				return e, false, nil
			}
			e, executed, err := inner.Execute(ctx, c, work)
			if executed {
				local.memory[c.Intent.ID()] = e
			}
			return e, executed, err
		},
		find: func(_ context.Context, i reprise.Intent) (store.Entry, error) {
			local.mu.Lock()
			defer local.mu.Unlock()
			if e, ok := local.memory[i.ID()].(store.Entry); ok {
				return e, nil
			}
			return store.Entry{}, store.ErrNotFound
		},
	}
}

// storesResultAfterwards commits the business rows, and then the record.
func storesResultAfterwards(d driver, s *sabotage) driver {
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		if e, err := d.Find(ctx, c.Intent); err == nil {
			return e, false, nil
		}
		var done store.Completion
		err := d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			done, err = work(ctx, tx)
			return err
		})
		if err != nil {
			return store.Entry{}, false, err
		}
		s.fired.Add(1)
		time.Sleep(betweenTransactions)
		return d.Execute(ctx, c, func(context.Context, *sql.Tx) (store.Completion, error) { return done, nil })
	}}
}

// keepsClaim leaves the intent in progress when its attempt has failed.
func keepsClaim(d driver, s *sabotage) driver {
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		e, executed, err := d.Execute(ctx, c, work)
		if errors.Is(err, errHandler) || err != nil && !errors.Is(err, store.ErrBusy) {
			s.fired.Add(1)
			_, _, _ = d.Begin(ctx, c, nil, lease)
		}
		return e, executed, err
	}}
}

// sharesFate fails everybody who waited while somebody else failed.
func sharesFate(d driver, s *sabotage) driver {
	var failed atomic.Int64
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (e store.Entry, executed bool, err error) {
		before := failed.Load()
		return d.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (done store.Completion, err error) {
			succeeded := false
			defer func() {
				if !succeeded {
					failed.Add(1)
				}
			}()
			if done, err = work(ctx, tx); err == nil && failed.Load() != before {
				s.fired.Add(1)
				err = errors.New("the batch failed")
			}
			succeeded = err == nil
			return done, err
		})
	}}
}

// swallow runs work and keeps its failure for later.
func swallow(s *sabotage, work func() error) (then func() error) {
	recovered, err := call(work)
	if recovered != nil || err != nil {
		s.fired.Add(1)
	}
	return func() error {
		if recovered != nil {
			panic(recovered)
		}
		return err
	}
}

// commitsFailures hands failures on, after it has committed. The end of the
// caller's context reaches the work, but not the driver.
func commitsFailures(d driver, s *sabotage) driver {
	none := func() error { return nil }
	under := func(ctx, inner context.Context) context.Context {
		inner, cancel := context.WithCancel(inner)
		context.AfterFunc(ctx, cancel)
		return inner
	}
	return brokenRuns{
		driver: broken{
			driver: d,
			execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
				then := none
				e, executed, err := d.Execute(context.WithoutCancel(ctx), c, func(inner context.Context, tx *sql.Tx) (done store.Completion, err error) {
					then = swallow(s, func() error { done, err = work(under(ctx, inner), tx); return err })
					return done, nil
				})
				if failed := then(); failed != nil {
					return store.Entry{}, false, failed
				}
				return e, executed, err
			},
			transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
				then := none
				err := d.Transact(context.WithoutCancel(ctx), func(inner context.Context, tx *sql.Tx) error {
					then = swallow(s, func() error { return work(under(ctx, inner), tx) })
					return nil
				})
				return errors.Join(then(), err)
			},
		},
		phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
			then := none
			err := d.Phase(context.WithoutCancel(ctx), o, lease, func(inner context.Context, tx *sql.Tx) (w store.PhaseWrites, err error) {
				then = swallow(s, func() error { w, err = work(under(ctx, inner), tx); return err })
				return w, nil
			})
			return errors.Join(then(), err)
		},
	}
}

// forgivesMisuse reports success for what the driver refused.
func forgivesMisuse(d driver, s *sabotage) driver {
	forgive := func(worked bool, err error) error {
		if err != nil && worked {
			s.fired.Add(1)
			return nil
		}
		return err
	}
	return brokenRuns{
		driver: broken{
			driver: d,
			execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
				worked := false
				e, executed, err := d.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
					done, err := work(ctx, tx)
					worked = err == nil
					return done, err
				})
				err = forgive(worked, err)
				return e, executed || worked, err
			},
			transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
				worked := false
				err := d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
					err := work(ctx, tx)
					worked = err == nil
					return err
				})
				return forgive(worked, err)
			},
		},
		phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
			worked := false
			err := d.Phase(ctx, o, lease, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
				w, err := work(ctx, tx)
				worked = err == nil
				return w, err
			})
			return forgive(worked, err)
		},
	}
}

// guardsNothing gives the handler a bare transaction, and ends it by a
// statement, after which its handle still reaches the connection.
func guardsNothing(d driver, s *sabotage) driver {
	return broken{driver: d, transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
		s.fired.Add(1)
		tx, err := s.db.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			return err
		}
		if err := work(ctx, tx); err != nil {
			_, _ = tx.Exec("ROLLBACK")
			return err
		}
		_, _ = tx.Exec("COMMIT")
		return nil
	}}
}
