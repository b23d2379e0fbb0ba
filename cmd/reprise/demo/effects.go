// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"net/url"
	"time"
)

// settleTimeout bounds the wait for events to be delivered.
const settleTimeout = 20 * time.Second

// effects is what GET /effects of the shop's admin listener answers.
type effects struct {
	Orders     int            `json:"orders"`
	Payments   int            `json:"payments"`
	Charges    int            `json:"charges"`
	Events     map[string]int `json:"events"`
	Deliveries map[string]int `json:"deliveries"`
}

func newEffects() *effects {
	return &effects{Events: map[string]int{}, Deliveries: map[string]int{}}
}

// delivered reports whether every event has been delivered at least once.
func (e *effects) delivered() bool {
	for kind, n := range e.Events {
		if e.Deliveries[kind] < n {
			return false
		}
	}
	return len(e.Events) > 0
}

// add sums two counts, of two references or of two callers.
func (e *effects) add(o *effects) {
	e.Orders += o.Orders
	e.Payments += o.Payments
	e.Charges += o.Charges
	for kind, n := range o.Events {
		e.Events[kind] += n
	}
	for kind, n := range o.Deliveries {
		e.Deliveries[kind] += n
	}
}

// one reports whether everything happened exactly once.
func (e *effects) one() bool {
	return e.Orders == 1 && e.Payments == 1 && e.Charges == 1 && worst(e.Events, 1) == 1 && worst(e.Deliveries, 1) == 1
}

// kinds are the events that one paid order makes.
var kinds = []string{"order.created", "payment.captured"}

// worst is the count furthest from want among the kinds that a paid order makes.
func worst(counts map[string]int, want int) int {
	result := want
	for _, kind := range kinds {
		if n := counts[kind]; distance(n, want) > distance(result, want) {
			result = n
		}
	}
	return result
}

func distance(a, b int) int { return max(a-b, b-a) }

// effects asks what really happened for one reference, once every event has been
// delivered or the wait for that is over.
func (w *world) effects(ctx context.Context, ref string) (*effects, error) {
	deadline := time.Now().Add(settleTimeout)
	for {
		e, err := w.effectsNow(ctx, ref)
		if err != nil || e.delivered() || time.Now().After(deadline) {
			return e, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return e, err
		}
	}
}

func (w *world) effectsNow(ctx context.Context, ref string) (*effects, error) {
	e := newEffects()
	query := url.Values{"caller": {w.db.caller}, "ref": {ref}}
	err := w.adminGet(ctx, "/effects?"+query.Encode(), e)
	return e, err
}

// adminGet reads one JSON document from the shop's admin listener.
func (w *world) adminGet(ctx context.Context, path string, into any) error {
	raw, err := w.get(ctx, "http://"+w.shop.addr["admin"]+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
