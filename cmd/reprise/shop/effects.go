// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise"
)

// effects is what really happened for one reference of one caller, counted where
// it happened: in the shop's tables, at the provider, in the outbox and behind
// the inbox of the consumer. It is what "once" is checked by; an answer of 200
// proves nothing.
type effects struct {
	Orders int `json:"orders"`
	// Payments are those that were captured, and Charges those that the provider
	// says it has captured for them and for any that were not.
	Payments    int            `json:"payments"`
	Charges     int            `json:"charges"`
	Redemptions int            `json:"redemptions"`
	Events      map[string]int `json:"events"`
	Deliveries  map[string]int `json:"deliveries"`
}

// countEffects counts the effects of everything of the caller that carries ref.
func (s *Shop) countEffects(ctx context.Context, caller reprise.Caller, ref string) (effects, error) {
	var e effects
	err := s.db.QueryRowContext(ctx, s.sql(`SELECT
		(SELECT count(*) FROM orders WHERE caller = ? AND ref = ?),
		(SELECT count(*) FROM payments WHERE caller = ? AND ref = ? AND status = ?),
		(SELECT count(*) FROM redemptions WHERE caller = ? AND ref = ?)`),
		caller, ref, caller, ref, statusCaptured, caller, ref).Scan(&e.Orders, &e.Payments, &e.Redemptions)
	if err != nil {
		return e, err
	}
	if e.Events, err = s.countEvents(ctx, caller, ref); err != nil {
		return e, err
	}
	if e.Deliveries, err = s.countDeliveries(ctx, caller, ref); err != nil {
		return e, err
	}
	e.Charges, err = s.countCharges(ctx, caller, ref)
	return e, err
}

// countEvents counts the events in the outbox, delivered, waiting or held. It looks
// at every row, this being for people and tests and not for a hot path, but reads
// only those in which the reference stands, as JSON writes it.
func (s *Shop) countEvents(ctx context.Context, caller reprise.Caller, ref string) (map[string]int, error) {
	written, err := json.Marshal(ref) // as emit has written it
	if err != nil {
		return nil, err
	}
	var queries []string
	var args []any
	for _, table := range s.dialect.events {
		queries = append(queries, `SELECT message_id, type, data FROM `+table+` WHERE source = ? AND `+s.dialect.contains)
		args = append(args, eventSource, written)
	}
	rows, err := s.db.QueryContext(ctx, s.sql(strings.Join(queries, ` UNION ALL `)), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	counts, seen := make(map[string]int), make(map[string]bool)
	for rows.Next() {
		var id, event string
		var data []byte
		if err := rows.Scan(&id, &event, &data); err != nil {
			return nil, err
		}
		var f fact
		if json.Unmarshal(data, &f) == nil && f.Caller == caller && f.Ref == ref && !seen[id] {
			seen[id] = true
			counts[event]++
		}
	}
	return counts, rows.Err()
}

func (s *Shop) countDeliveries(ctx context.Context, caller reprise.Caller, ref string) (map[string]int, error) {
	rows, err := s.db.QueryContext(ctx,
		s.sql(`SELECT type, count(*) FROM deliveries WHERE caller = ? AND ref = ? GROUP BY type`), caller, ref)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	counts := make(map[string]int)
	for rows.Next() {
		var event string
		var n int
		if err := rows.Scan(&event, &n); err != nil {
			return nil, err
		}
		counts[event] = n
	}
	return counts, rows.Err()
}

// countCharges asks the provider, because what it has charged is what the
// caller's card has paid, whatever the shop believes.
func (s *Shop) countCharges(ctx context.Context, caller reprise.Caller, ref string) (int, error) {
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT id FROM payments WHERE caller = ? AND ref = ? ORDER BY seq`), caller, ref)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	total := 0
	for _, id := range ids {
		n, err := s.provider.captured(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("asking the provider: %w", err)
		}
		total += n
	}
	return total, nil
}
