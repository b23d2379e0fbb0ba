// SPDX-License-Identifier: Apache-2.0

package reprise

import "time"

// Message is one event on its way from an outbox to an inbox. Its attributes
// are those of CloudEvents 1.0; ID together with Source is what a consumer
// recognises a redelivery by (rules O2 and I1).
type Message struct {
	// ID is unique within Source, and never changes between deliveries.
	// Defaults to a new UUIDv7 when the message is enqueued.
	ID string
	// Source names the system that made the event, such as "/shop".
	Source string
	// Type is the kind of event, such as "order.created".
	Type string
	// Subject is the order key: messages of one subject are delivered in the
	// order in which their transactions committed. Empty means no order.
	Subject string
	// Time is when the event happened, in UTC. Defaults to the time of enqueueing.
	Time time.Time
	// ContentType of Data. Defaults to "application/json".
	ContentType string
	// Data is the payload. It is frozen when the message is enqueued.
	Data []byte
	// Header holds further attributes, such as traceparent. May be nil.
	Header map[string]string
}
