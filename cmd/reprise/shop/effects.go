// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"encoding/json"
	"fmt"

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

// eventsQuery counts the events in the outbox, delivered, waiting or held. It
// looks at every row, this being for people and tests and not for a hot path, but
// reads as JSON only those in which the reference, as JSON writes it, stands.
const eventsQuery = `
SELECT type, count(DISTINCT message_id) FROM (
	SELECT message_id, type, CAST(data AS TEXT) AS fact FROM reprise_outbox
	WHERE source = '` + eventSource + `' AND instr(data, ?3) > 0
	UNION ALL
	SELECT message_id, type, CAST(data AS TEXT) FROM reprise_outbox_hold
	WHERE source = '` + eventSource + `' AND instr(data, ?3) > 0
)
WHERE json_extract(fact, '$.caller') = ?1 AND json_extract(fact, '$.ref') = ?2
GROUP BY type`

// countEffects counts the effects of everything of the caller that carries ref.
func (s *Shop) countEffects(ctx context.Context, caller reprise.Caller, ref string) (effects, error) {
	var e effects
	err := s.db.QueryRowContext(ctx, `SELECT
		(SELECT count(*) FROM orders WHERE caller = ?1 AND ref = ?2),
		(SELECT count(*) FROM payments WHERE caller = ?1 AND ref = ?2 AND status = ?3),
		(SELECT count(*) FROM redemptions WHERE caller = ?1 AND ref = ?2)`,
		caller, ref, statusCaptured).Scan(&e.Orders, &e.Payments, &e.Redemptions)
	if err != nil {
		return e, err
	}
	written, err := json.Marshal(ref) // as emit has written it
	if err != nil {
		return e, err
	}
	if e.Events, err = s.countByType(ctx, eventsQuery, caller, ref, written); err != nil {
		return e, err
	}
	e.Deliveries, err = s.countByType(ctx,
		`SELECT type, count(*) FROM deliveries WHERE caller = ?1 AND ref = ?2 GROUP BY type`, caller, ref)
	if err != nil {
		return e, err
	}
	e.Charges, err = s.countCharges(ctx, caller, ref)
	return e, err
}

func (s *Shop) countByType(ctx context.Context, query string, args ...any) (map[string]int, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
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
	rows, err := s.db.QueryContext(ctx, `SELECT id FROM payments WHERE caller = ? AND ref = ? ORDER BY seq`, caller, ref)
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
