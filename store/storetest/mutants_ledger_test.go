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

func recordMutants() []mutant {
	stored := func(change func(*store.Completion)) func(driver, *sabotage) driver {
		return func(d driver, s *sabotage) driver { return changing(d, s, func(*reprise.Intent) {}, change) }
	}
	return []mutant{
		{
			name: "the body is cut at 1000 bytes",
			breaks: []string{
				"L4_replay_is_byte_equal", "L4_completed_run_replays_byte_equal",
			},
			wrap: stored(func(c *store.Completion) { c.Result.Body = c.Result.Body[:min(len(c.Result.Body), 1000)] }),
		},
		{
			name:   "the body is cut at its first NUL byte",
			breaks: []string{"L4_replay_is_byte_equal", "L4_completed_run_replays_byte_equal"},
			wrap: stored(func(c *store.Completion) {
				if n := slices.Index(c.Result.Body, 0); n >= 0 {
					c.Result.Body = c.Result.Body[:n]
				}
			}),
		},
		{
			name:   "a header keeps its first value only",
			breaks: []string{"L4_replay_is_byte_equal", "L4_completed_run_replays_byte_equal"},
			wrap: stored(func(c *store.Completion) {
				first := map[string][]string{}
				for name, values := range c.Result.Header {
					first[name] = values[:1]
				}
				c.Result.Header = first
			}),
		},
		{
			name:   "every stored status is 200",
			breaks: []string{"L4_replay_is_byte_equal", "L2_random_histories_follow_the_state_machine", "L1_absent_intent_executes_once"},
			wrap:   stored(func(c *store.Completion) { c.Result.Status = 200 }),
		},
		{
			name:   "the body lives as long as the tombstone",
			breaks: []string{"L9_lifetimes_run_from_completion", "L9_body_goes_after_its_retention"},
			wrap:   stored(func(c *store.Completion) { c.Retention = c.Tombstone }),
		},
		{
			name:   "there is no tombstone",
			breaks: []string{"L9_lifetimes_run_from_completion", "L9_body_goes_after_its_retention"},
			wrap:   stored(func(c *store.Completion) { c.Tombstone = c.Retention }),
		},
		{
			name:   "a tombstone stays twice as long",
			breaks: []string{"L9_lifetimes_run_from_completion", "L9_forgotten_key_is_absent"},
			wrap:   stored(func(c *store.Completion) { c.Tombstone *= 2 }),
		},
		{
			name:   "the tombstone forgets what it refers to",
			breaks: []string{"L8_omitted_body_is_a_tombstone_at_once", "L9_body_goes_after_its_retention"},
			wrap:   stored(func(c *store.Completion) { c.Result.Reference = "" }),
		},
		{
			name:   "a result whose body is omitted is not stored, so the intent runs again",
			breaks: []string{"L8_omitted_body_is_a_tombstone_at_once", "L2_random_histories_follow_the_state_machine"},
			wrap:   forgetsOversize,
		},
		{
			name:   "answers come from a cache that shares its memory",
			breaks: []string{"L4_answers_share_no_memory", "L9_body_goes_after_its_retention"},
			wrap:   sharesAnswers,
		},
		{
			name:   "a duplicate writes its fingerprint over the record's",
			breaks: []string{"L6_duplicate_with_other_content_leaves_the_record_alone", "L2_random_histories_follow_the_state_machine"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
					e, executed, err := d.Execute(ctx, c, work)
					if err == nil && e.Intent != c.Intent {
						s.exec("UPDATE reprise_ledger SET fingerprint = ? WHERE id = ?", c.Intent.Fingerprint[:], e.ID[:])
					}
					return e, executed, err
				}}
			},
		},
		{
			name:   "a listing loses the last record of a page",
			breaks: []string{"L2_entries_list_every_record_in_order"},
			wrap: func(d driver, s *sabotage) driver {
				return brokenRuns{driver: d, entries: func(ctx context.Context, f store.EntryFilter) ([]store.Entry, error) {
					page, err := d.Entries(ctx, f)
					s.fired.Add(1)
					return page[:max(len(page)-1, 0)], err
				}}
			},
		},
	}
}

func resolveMutants() []mutant {
	return []mutant{
		{
			name: "resolve looks without waiting",
			breaks: []string{
				"L7_resolve_waits_behind_a_transaction_that_commits", "L7_resolve_waits_behind_a_transaction_that_rolls_back",
			},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, resolve: func(ctx context.Context, i reprise.Intent) (store.Entry, error) {
					s.fired.Add(1)
					return d.Find(ctx, i)
				}}
			},
		},
		{
			name:   "resolve says of everything that nothing was kept",
			breaks: []string{"L7_resolve_finds_what_was_committed", "L7_resolve_waits_behind_a_transaction_that_commits"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, resolve: func(context.Context, reprise.Intent) (store.Entry, error) {
					s.fired.Add(1)
					return store.Entry{}, store.ErrNotFound
				}}
			},
		},
		{
			name:   "resolve is never certain",
			breaks: []string{"L7_resolve_is_certain_that_nothing_was_kept", "L7_resolve_waits_behind_a_transaction_that_rolls_back"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, resolve: func(ctx context.Context, i reprise.Intent) (store.Entry, error) {
					e, err := d.Resolve(ctx, i)
					if errors.Is(err, store.ErrNotFound) {
						s.fired.Add(1)
						err = store.ErrUnavailable
					}
					return e, err
				}}
			},
		},
	}
}

func purgeMutants() []mutant {
	purging := func(purge func(d driver, s *sabotage, ctx context.Context, limit int) (int, error)) func(driver, *sabotage) driver {
		return func(d driver, s *sabotage) driver {
			return broken{driver: d, purge: func(ctx context.Context, limit int) (int, error) { return purge(d, s, ctx, limit) }}
		}
	}
	return []mutant{
		{
			name:   "the purge does nothing",
			breaks: []string{"L9_purge_drops_what_it_says", "L9_purge_works_in_batches", "L9_two_purges_at_once_share_the_work"},
			wrap: purging(func(_ driver, s *sabotage, _ context.Context, _ int) (int, error) {
				s.fired.Add(1)
				return 0, nil
			}),
		},
		{
			name:   "a forgotten record is put aside before the attempt and not within it",
			breaks: []string{"L9_forgotten_key_is_executed_once"},
			wrap:   forgetsFirst,
		},
		{
			name:   "the purge ignores its limit",
			breaks: []string{"L9_purge_works_in_batches"},
			wrap: purging(func(d driver, s *sabotage, ctx context.Context, _ int) (int, error) {
				s.fired.Add(1)
				return d.Purge(ctx, 1000)
			}),
		},
		{
			name:   "two purges count the same records",
			breaks: []string{"L9_two_purges_at_once_share_the_work"},
			wrap: purging(func(d driver, s *sabotage, ctx context.Context, limit int) (int, error) {
				n, err := d.Purge(ctx, limit)
				s.fired.Add(1)
				return min(2*n, limit), err
			}),
		},
		{
			name:   "the purge goes by age alone and deletes work in progress",
			breaks: []string{"L9_purge_never_touches_unfinished_work"},
			wrap: purging(func(d driver, s *sabotage, ctx context.Context, limit int) (int, error) {
				s.exec("DELETE FROM reprise_ledger WHERE state = 'in_progress' AND lease_until < unixepoch() * 1000000 - 86400000000")
				return d.Purge(ctx, limit)
			}),
		},
		{
			name:   "the purge deletes the steps of work in progress",
			breaks: []string{"L9_purge_never_touches_unfinished_work", "L2_random_histories_follow_the_state_machine"},
			wrap: purging(func(d driver, s *sabotage, ctx context.Context, limit int) (int, error) {
				s.exec("DELETE FROM reprise_step")
				return d.Purge(ctx, limit)
			}),
		},
		{
			name:   "a purged body leaves a completed record without one",
			breaks: []string{"L9_purge_drops_what_it_says"},
			wrap: purging(func(d driver, s *sabotage, ctx context.Context, limit int) (int, error) {
				n, err := d.Purge(ctx, limit)
				s.exec("UPDATE reprise_ledger SET state = 'completed' WHERE state = 'tombstone'")
				return n, err
			}),
		},
	}
}

// forgetsOversize commits the effect of a result that is too large, without it.
func forgetsOversize(d driver, s *sabotage) driver {
	errOversize := errors.New("oversize")
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		var done store.Completion
		e, executed, err := d.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (_ store.Completion, err error) {
			if done, err = work(ctx, tx); err == nil && done.OmitBody {
				err = errOversize
			}
			return done, err
		})
		if !errors.Is(err, errOversize) {
			return e, executed, err
		}
		s.fired.Add(1)
		err = d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			_, err = work(ctx, tx)
			return err
		})
		return store.Entry{Intent: c.Intent, State: reprise.StateTombstone, Result: done.Result}, err == nil, err
	}}
}

// forgetsFirst looks for a forgotten record, and then deletes what is there.
func forgetsFirst(d driver, s *sabotage) driver {
	return broken{driver: d, execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
		if _, err := d.Find(ctx, c.Intent); errors.Is(err, store.ErrNotFound) {
			time.Sleep(5 * time.Millisecond) // The database is some way off.
			s.exec("DELETE FROM reprise_ledger WHERE id = ?", idOf(c))
		}
		return d.Execute(ctx, c, work)
	}}
}

// sharesAnswers hands out its own copy of a record, for ever.
func sharesAnswers(d driver, s *sabotage) driver {
	get := func(i reprise.Intent) (store.Entry, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e, ok := s.memory[i.ID()].(store.Entry)
		return e, ok
	}
	return broken{
		driver: d,
		execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
			if e, ok := get(c.Intent); ok {
				s.fired.Add(1)
				return e, false, nil
			}
			e, executed, err := d.Execute(ctx, c, work)
			if err == nil {
				s.mu.Lock()
				s.memory[c.Intent.ID()] = e
				s.mu.Unlock()
			}
			return e, executed, err
		},
		find: func(ctx context.Context, i reprise.Intent) (store.Entry, error) {
			if e, ok := get(i); ok {
				s.fired.Add(1)
				return e, nil
			}
			return d.Find(ctx, i)
		},
	}
}
