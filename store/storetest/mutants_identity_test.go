// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// changing breaks what Execute and Phase store, or under which name.
func changing(d driver, s *sabotage, identity func(*reprise.Intent), stored func(*store.Completion)) driver {
	return brokenRuns{
		driver: broken{
			driver: d,
			execute: func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
				s.fired.Add(1)
				identity(&c.Intent)
				return d.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
					done, err := work(ctx, tx)
					stored(&done)
					return done, err
				})
			},
			find: func(ctx context.Context, i reprise.Intent) (store.Entry, error) {
				identity(&i)
				return d.Find(ctx, i)
			},
		},
		phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
			return d.Phase(ctx, o, lease, func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error) {
				w, err := work(ctx, tx)
				if w.Complete != nil {
					s.fired.Add(1)
					done := *w.Complete
					stored(&done)
					w.Complete = &done
				}
				return w, err
			})
		},
	}
}

// unguarded takes a guard of the outbox away before every transaction of the
// driver.
func unguarded(statement string) func(driver, *sabotage) driver {
	return func(d driver, s *sabotage) driver {
		return broken{driver: d, transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
			s.exec(statement)
			return d.Transact(ctx, work)
		}}
	}
}

func identityMutants() []mutant {
	rename := func(identity func(*reprise.Intent)) func(driver, *sabotage) driver {
		return func(d driver, s *sabotage) driver { return changing(d, s, identity, func(*store.Completion) {}) }
	}
	return []mutant{
		{
			name:   "two waiting messages may have one identity",
			breaks: []string{"O2_identity_is_taken_while_its_message_waits"},
			wrap:   unguarded("DROP INDEX IF EXISTS reprise_outbox_message"),
		},
		{
			name:   "the identity of a held message is free",
			breaks: []string{"O2_identity_is_taken_while_its_message_is_held"},
			wrap:   unguarded("DROP TRIGGER IF EXISTS reprise_outbox_held"),
		},
		{
			name:   "keys are compared without their case",
			breaks: []string{"K2_keys_are_compared_byte_by_byte", "K4_no_caller_finds_the_record_of_another"},
			wrap: rename(func(i *reprise.Intent) {
				if i.Key != "" && i.Key[0] >= 'A' && i.Key[0] <= 'Z' {
					i.Key = reprise.Key(i.Key[0]+'a'-'A') + i.Key[1:]
				}
			}),
		},
		{
			name:   "keys are cut at 254 bytes",
			breaks: []string{"K2_keys_are_compared_byte_by_byte"},
			wrap:   rename(func(i *reprise.Intent) { i.Key = i.Key[:min(len(i.Key), 254)] }),
		},
		{
			name:   "keys of all callers are one space",
			breaks: []string{"K3_triple_is_the_identity", "K4_no_caller_finds_the_record_of_another"},
			wrap:   rename(func(i *reprise.Intent) { i.Caller = "all" }),
		},
		{
			name:   "the identity is the parts joined by a colon",
			breaks: []string{"K3_parts_of_the_triple_do_not_run_into_each_other"},
			wrap: rename(func(i *reprise.Intent) {
				i.Caller, i.Operation = reprise.Caller(fmt.Sprintf("%s:%s:%s", i.Caller, i.Operation, i.Key)), "joined"
				i.Key = "joined"
			}),
		},
	}
}
