// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
)

const (
	// eventSource names the shop in its events, and fulfilment the consumer in its
	// receipts. Neither may change while messages are under way.
	eventSource = "/shop"
	fulfilment  = "fulfilment"
)

// fact is the content of an event: what happened, to whose what.
type fact struct {
	Caller reprise.Caller `json:"caller"`
	// Ref is the caller's own reference of the thing below.
	Ref        string      `json:"ref"`
	Order      *order      `json:"order,omitempty"`
	Payment    *payment    `json:"payment,omitempty"`
	Redemption *redemption `json:"redemption,omitempty"`
}

// emit adds an event to the transaction of what it tells about: either both are
// kept or neither is. Events of one subject are delivered in their order.
func (s *Shop) emit(ctx context.Context, tx *sql.Tx, event, subject string, f fact) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return s.outbox.Enqueue(ctx, tx, reprise.Message{Type: event, Subject: subject, Data: data})
}

// deliver is the end of the relay in this process. A message may come several
// times, and to several processes at once; the inbox has it handled once.
func (s *Shop) deliver(ctx context.Context, m reprise.Message) error {
	done, err := s.inbox.Do(ctx, m, s.fulfil)
	s.metrics.received(m, done, err)
	return err
}

// fulfil is where a real shop would pack the parcel. This one notes that it did.
func (s *Shop) fulfil(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
	var f fact
	if err := json.Unmarshal(m.Data, &f); err != nil {
		return outbox.Permanent(err)
	}
	_, err := tx.ExecContext(ctx, s.sql(`INSERT INTO deliveries (caller, ref, type) VALUES (?, ?, ?)`), f.Caller, f.Ref, m.Type)
	return err
}
