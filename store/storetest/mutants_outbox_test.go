// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// relaying breaks the relay side of a driver.
func relaying(change func(r store.Relay, s *sabotage) brokenRelay) func(driver, *sabotage) driver {
	return func(d driver, s *sabotage) driver {
		b := change(d.Relay(), s)
		b.Relay = d.Relay()
		return broken{driver: d, relay: b}
	}
}

func outboxMutants() []mutant {
	return []mutant{
		{
			name: "messages are written in a transaction of their own, whatever becomes of the other",
			breaks: []string{
				"O1_rolled_back_messages_never_appear", "L3_execute_keeps_nothing_after_an_error",
				"L3_phase_keeps_nothing_after_an_error", "L3_transact_keeps_nothing_after_an_error",
			},
			wrap: func(d driver, s *sabotage) driver { return enqueuesOutside(d, s, true) },
		},
		{
			name:   "messages are written after the commit",
			breaks: []string{"L3_effect_and_record_become_visible_together"},
			wrap:   func(d driver, s *sabotage) driver { return enqueuesOutside(d, s, false) },
		},
		{
			name:   "a transaction of the application gets its messages dropped",
			breaks: []string{"O1_messages_join_a_transaction_of_the_application"},
			wrap:   dropsForeign,
		},
		{
			name:   "the header of a message is not stored",
			breaks: []string{"O2_message_survives_byte_for_byte", "O6_hold_survives_byte_for_byte"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, enqueue: func(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error {
					s.fired.Add(1)
					m = slices.Clone(m)
					for i := range m {
						m[i].Header = nil
					}
					return d.Enqueue(ctx, tx, m...)
				}}
			},
		},
		{
			name:   "a fetch moves the cursor",
			breaks: []string{"O3_fetch_moves_nothing"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{fetch: func(ctx context.Context, slot store.Slot, limit int) (store.Page, error) {
					p, err := r.Fetch(ctx, slot, limit)
					if err == nil && len(p.Messages) > 0 {
						s.fired.Add(1)
						err = r.Advance(ctx, slot, p, nil)
					}
					return p, err
				}}
			}),
		},
		{
			name: "the cursor passes messages that were not fetched",
			breaks: []string{
				"O3_no_committed_message_is_lost", "O3_late_commit_is_not_skipped", "O7_only_what_was_advanced_over_is_done",
			},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{advance: func(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
					if err := r.Advance(ctx, slot, p, holds); err != nil {
						return err
					}
					next, err := r.Fetch(ctx, slot, 1)
					if err != nil || len(next.Messages) == 0 {
						return err
					}
					s.fired.Add(1)
					return r.Advance(ctx, slot, next, nil)
				}}
			}),
		},
		{
			name:   "a page is in no order",
			breaks: []string{"O1_messages_are_kept_in_the_order_they_were_enqueued", "O5_order_of_a_subject_is_the_order_of_its_commits"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{fetch: func(ctx context.Context, slot store.Slot, limit int) (store.Page, error) {
					p, err := r.Fetch(ctx, slot, limit)
					s.fired.Add(1)
					slices.Reverse(p.Messages)
					return p, err
				}}
			}),
		},
		{
			name:   "the relay is woken when a message is enqueued",
			breaks: []string{"O3_wake_follows_the_commit"},
			wrap: func(d driver, s *sabotage) driver {
				wake := make(chan struct{}, 1)
				return broken{
					driver: d, relay: brokenRelay{Relay: d.Relay(), wake: wake},
					enqueue: func(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error {
						s.fired.Add(1)
						select {
						case wake <- struct{}{}:
						default:
						}
						return d.Enqueue(ctx, tx, m...)
					},
				}
			},
		},
		{
			name:   "all relays of a process share one channel",
			breaks: []string{"O3_every_relay_is_woken"},
			wrap: func(d driver, s *sabotage) driver {
				shared := d.Relay()
				return broken{driver: d, relay: shared, enqueue: func(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error {
					s.fired.Add(1)
					return d.Enqueue(ctx, tx, m...)
				}}
			},
		},
	}
}

func slotMutants() []mutant {
	const (
		freeSlots = "UPDATE reprise_outbox_slot SET lease_until = 0"
		sameEpoch = "UPDATE reprise_outbox_slot SET epoch = 1"
	)
	return []mutant{
		{
			name:   "a held slot is given away",
			breaks: []string{"O4_slot_has_one_owner", "O4_concurrent_relays_share_no_slot"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{acquire: func(ctx context.Context, owner string, lease time.Duration, limit int) ([]store.Slot, error) {
					if owner != "first" && owner != "counter" { // These ask until they have all.
						s.exec(freeSlots)
					}
					return r.Acquire(ctx, owner, lease, limit)
				}}
			}),
		},
		{
			name:   "a takeover of a slot stays in the epoch",
			breaks: []string{"O4_lapsed_slot_is_taken_over_under_a_later_epoch"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{acquire: func(ctx context.Context, owner string, lease time.Duration, limit int) ([]store.Slot, error) {
					slots, err := r.Acquire(ctx, owner, lease, limit)
					s.exec(sameEpoch)
					for i := range slots {
						slots[i].Epoch = 1
					}
					return slots, err
				}}
			}),
		},
		{
			name:   "a relay is known by its name, not by its epoch",
			breaks: []string{"O4_zombie_relay_records_nothing"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				current := func(slot store.Slot) store.Slot {
					s.fired.Add(1)
					_ = s.db.QueryRow("SELECT epoch FROM reprise_outbox_slot WHERE slot = ? AND owner = ?", slot.Number, slot.Owner).Scan(&slot.Epoch)
					return slot
				}
				return brokenRelay{
					renew: func(ctx context.Context, slot store.Slot, lease time.Duration) error {
						return r.Renew(ctx, current(slot), lease)
					},
					advance: func(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
						return r.Advance(ctx, current(slot), p, holds)
					},
					update: func(ctx context.Context, slot store.Slot, holds []store.Hold) error {
						return r.Update(ctx, current(slot), holds)
					},
				}
			}),
		},
		{
			name:   "a release frees the slot, whoever holds it",
			breaks: []string{"O4_releasing_a_lost_slot_takes_it_from_nobody"},
			wrap: relaying(func(_ store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{release: func(context.Context, store.Slot) error {
					s.exec(freeSlots)
					return nil
				}}
			}),
		},
	}
}

func holdMutants() []mutant {
	return []mutant{
		{
			name: "a failed message is dropped",
			breaks: []string{
				"O6_failed_message_is_due_when_its_time_has_come", "O8_parked_message_never_expires",
				"O6_later_messages_of_a_held_subject_wait_in_order", "O6_hold_survives_byte_for_byte",
			},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{advance: func(ctx context.Context, slot store.Slot, p store.Page, _ []store.Hold) error {
					s.fired.Add(1)
					return r.Advance(ctx, slot, p, nil)
				}}
			}),
		},
		{
			name:   "a retry is due at once",
			breaks: []string{"O6_failed_message_is_due_when_its_time_has_come"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{update: func(ctx context.Context, slot store.Slot, holds []store.Hold) error {
					for i := range holds {
						s.fired.Add(1)
						holds[i].Delay = 0
					}
					return r.Update(ctx, slot, holds)
				}}
			}),
		},
		{
			name:   "a blocked message overtakes the one that blocks it",
			breaks: []string{"O6_later_messages_of_a_held_subject_wait_in_order", "O8_parked_message_never_expires"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{advance: func(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
					for i := range holds {
						if holds[i].State == store.HoldBlocked {
							s.fired.Add(1)
							holds[i].State = store.HoldRetry
						}
					}
					return r.Advance(ctx, slot, p, holds)
				}}
			}),
		},
		{
			name:   "a held message blocks every subject",
			breaks: []string{"O6_held_message_blocks_no_other_subject"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{subjects: func(ctx context.Context, slot store.Slot) (map[string]bool, error) {
					held, err := r.Subjects(ctx, slot)
					if len(held) > 0 {
						s.fired.Add(1)
						held["b"], held[""] = true, true
					}
					return held, err
				}}
			}),
		},
		{
			name:   "due ignores its limit",
			breaks: []string{"O6_due_is_bounded_and_complete"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{due: func(ctx context.Context, slot store.Slot, _ int) ([]store.Hold, error) {
					s.fired.Add(1)
					return r.Due(ctx, slot, 100)
				}}
			}),
		},
		{
			name:   "a hold does not count its attempts",
			breaks: []string{"O6_failed_message_is_due_when_its_time_has_come", "O6_hold_survives_byte_for_byte"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{update: func(ctx context.Context, slot store.Slot, holds []store.Hold) error {
					for i := range holds {
						s.fired.Add(1)
						holds[i].Attempts = 1
					}
					return r.Update(ctx, slot, holds)
				}}
			}),
		},
		{
			name:   "a held message is found by its id alone",
			breaks: []string{"O2_source_and_id_together_name_a_message"},
			wrap: relaying(func(r store.Relay, s *sabotage) brokenRelay {
				return brokenRelay{update: func(ctx context.Context, slot store.Slot, holds []store.Hold) error {
					err := r.Update(ctx, slot, holds)
					for _, h := range holds {
						s.exec("UPDATE reprise_outbox_hold SET state = ?, attempts = ? WHERE message_id = ?", string(h.State), h.Attempts, h.Message.ID)
					}
					return err
				}}
			}),
		},
		{
			name:   "parked messages expire",
			breaks: []string{"O8_parked_message_never_expires"},
			wrap: func(d driver, s *sabotage) driver {
				return broken{driver: d, purge: func(ctx context.Context, limit int) (int, error) {
					s.exec("DELETE FROM reprise_outbox_hold WHERE state = 'parked'")
					return d.Purge(ctx, limit)
				}}
			},
		},
	}
}

// afterwards runs then when a transaction of d has ended, with what was noted
// in it. Only a committed one counts unless always.
func afterwards(d driver, always bool, forget, then func()) driver {
	ended := func(committed bool) {
		if committed || always {
			then()
		}
		forget()
	}
	return brokenRuns{
		driver: broken{
			driver: d,
			execute: func(ctx context.Context, c store.Claim, work atomicWork) (e store.Entry, executed bool, err error) {
				defer func() { ended(executed) }()
				return d.Execute(ctx, c, work)
			},
			transact: func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) (err error) {
				committed := false
				defer func() { ended(committed) }()
				err = d.Transact(ctx, work)
				committed = err == nil
				return err
			},
		},
		phase: func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) (err error) {
			committed := false
			defer func() { ended(committed) }()
			err = d.Phase(ctx, o, lease, work)
			committed = err == nil
			return err
		},
	}
}

// noting is a driver whose handlers leave something for afterwards.
type noting struct {
	driver

	enqueue func(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error
	accept  func(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error)
}

func (n noting) Enqueue(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error {
	if n.enqueue != nil {
		return n.enqueue(ctx, tx, m...)
	}
	return n.driver.Enqueue(ctx, tx, m...)
}

// enqueuesOutside writes messages after the transaction, also, if always, when
// that was rolled back.
func enqueuesOutside(d driver, s *sabotage, always bool) driver {
	var pending []reprise.Message
	return noting{
		driver: afterwards(d, always, func() { pending = nil }, func() {
			if messages := pending; len(messages) > 0 {
				s.fired.Add(1)
				time.Sleep(betweenTransactions)
				err := d.Transact(context.Background(), func(ctx context.Context, tx *sql.Tx) error { return d.Enqueue(ctx, tx, messages...) })
				if err != nil {
					panic(err)
				}
			}
		}),
		enqueue: func(_ context.Context, _ *sql.Tx, m ...reprise.Message) error {
			pending = append(pending, m...)
			return nil
		},
	}
}

// mutants returns the zoo.
func mutants() []mutant {
	return slices.Concat(
		identityMutants(), executeMutants(), recordMutants(), resolveMutants(), purgeMutants(), runMutants(),
		outboxMutants(), slotMutants(), holdMutants(), inboxMutants(),
	)
}
