// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func inboxMutants() []mutant {
	return []mutant{
		{
			name:   "every delivery is fresh",
			breaks: []string{"I1_receipt_commits_with_its_effect", "I1_concurrent_deliveries_have_one_effect"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, accept: func(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error) {
					s.fired.Add(1)
					_, stored, err := d.Accept(ctx, tx, r)
					return true, stored, err
				}}
			},
		},
		{
			name:   "the source of a message does not count",
			breaks: []string{"I2_consumer_source_and_id_are_the_identity"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, accept: func(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error) {
					s.fired.Add(1)
					r.Source = ""
					return d.Accept(ctx, tx, r)
				}}
			},
		},
		{
			name:   "another payload replaces the digest",
			breaks: []string{"I3_stored_digest_is_that_of_the_first_payload"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, accept: func(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error) {
					fresh, _, err := d.Accept(ctx, tx, r)
					s.fired.Add(1)
					return fresh, r.Digest, err
				}}
			},
		},
		{
			name: "the receipt is written in a transaction of its own",
			breaks: []string{
				"I5_rolled_back_effect_leaves_no_receipt", "L3_execute_keeps_nothing_after_an_error",
				"L3_phase_keeps_nothing_after_an_error", "L3_transact_keeps_nothing_after_an_error",
			},
			wrap: acceptsOutside,
		},
		{
			name:   "the inbox forgets by the clock of the purge alone",
			breaks: []string{"I2_purge_deletes_old_receipts_only"},
			wrap: func(d driver, s *sabotage) driver {
				return forgetful{d, s}
			},
		},
	}
}

// forgetful purges receipts of any age.
type forgetful struct {
	driver

	s *sabotage
}

func (f forgetful) PurgeInbox(ctx context.Context, _ time.Duration, limit int) (int, error) {
	f.s.fired.Add(1)
	return f.driver.PurgeInbox(ctx, 0, limit)
}

func (n noting) Accept(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error) {
	if n.accept != nil {
		return n.accept(ctx, tx, r)
	}
	return n.driver.Accept(ctx, tx, r)
}

// acceptsOutside keeps the receipt whatever becomes of its effect.
func acceptsOutside(d driver, s *sabotage) driver {
	var pending []store.Receipt
	return noting{
		driver: afterwards(d, true, func() { pending = nil }, func() {
			for _, r := range pending {
				s.fired.Add(1)
				err := d.Transact(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
					_, _, err := d.Accept(ctx, tx, r)
					return err
				})
				if err != nil {
					panic(err)
				}
			}
		}),
		accept: func(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error) {
			pending = append(pending, r)
			return d.Accept(ctx, tx, r)
		},
	}
}

// dropsForeign enqueues in transactions of its own only.
func dropsForeign(d driver, s *sabotage) driver {
	var mine *sql.Tx
	return broken{
		driver: d,
		transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
			return d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
				mine = tx
				return work(ctx, tx)
			})
		},
		enqueue: func(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error {
			if tx != mine {
				s.fired.Add(1)
				return nil
			}
			return d.Enqueue(ctx, tx, m...)
		},
	}
}
