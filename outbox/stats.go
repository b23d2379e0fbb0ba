// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"maps"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// Wake is why a relay looked for the message it delivered. When commits of the
// same process arrive as polls, wake-ups are being lost.
type Wake string

// The reasons.
const (
	// WakeTakeover: the slot had just been taken over.
	WakeTakeover Wake = "takeover"
	// WakeCommit: a transaction of this process committed messages.
	WakeCommit Wake = "commit"
	// WakePoll: the regular look, which is what messages of other processes wait for.
	WakePoll Wake = "poll"
	// WakeBacklog: the page before was full.
	WakeBacklog Wake = "backlog"
	// WakeHold: a held message had become due.
	WakeHold Wake = "hold"
)

// Delivery is what Observe is told about one delivery that ended.
type Delivery struct {
	Message reprise.Message
	// Attempt counts from 1.
	Attempt int
	// Took is how long the sink worked on it.
	Took time.Duration
	// State is what becomes of the message: store.HoldDelivered, HoldRetry or
	// HoldParked.
	State store.HoldState
	// Err is nil when the sink confirmed it.
	Err error
	// Wake is why the relay looked for the message.
	Wake Wake
}

// Stats counts what a relay did since it was made. What is waiting is never
// counted here but asked of the table: see Relay.Backlog.
type Stats struct {
	// Delivered counts confirmations by the sink.
	Delivered uint64
	// Failed counts deliveries that were not confirmed, and Unknown those of them
	// that had no answer in time. Unavailable counts deliveries that found the
	// destination away and are in neither.
	Failed, Unknown, Unavailable uint64
	// Parked and Blocked count messages that were held for these reasons.
	Parked, Blocked uint64
	// Taken counts slots taken over, and Lost those whose lease was lost.
	Taken, Lost uint64
	// Wakes counts deliveries by what the relay was woken by.
	Wakes map[Wake]uint64
	// Lag is the time from the making of the last delivered message until it was
	// confirmed, by the clocks of the two processes.
	Lag time.Duration
}

// Stats returns the counts so far. Safe for concurrent use.
func (r *Relay) Stats() Stats {
	r.statsMu.Lock()
	defer r.statsMu.Unlock()
	s := r.stats
	s.Wakes = maps.Clone(r.stats.Wakes)
	return s
}

func (r *Relay) count(add func(*Stats)) {
	r.statsMu.Lock()
	defer r.statsMu.Unlock()
	add(&r.stats)
}

func (r *Relay) observe(d Delivery) {
	r.count(func(s *Stats) {
		s.Wakes[d.Wake]++
		switch {
		case d.Err == nil:
			s.Delivered++
			s.Lag = time.Since(d.Message.Time)
		case isUnavailable(d.Err):
			s.Unavailable++
		default:
			s.Failed++
			if errors.Is(d.Err, errNoAnswer) || errors.Is(d.Err, errInterrupted) {
				s.Unknown++
			}
		}
	})
	if d.State == store.HoldParked {
		r.config.Logger.Warn("outbox: parked a message", "id", d.Message.ID, "type", d.Message.Type,
			"subject", d.Message.Subject, "attempts", d.Attempt, "error", d.Err)
	}
	if r.config.Observe != nil {
		r.config.Observe(d)
	}
}

// recorded counts holds that were written.
func (r *Relay) recorded(holds []store.Hold) {
	r.count(func(s *Stats) {
		for _, h := range holds {
			switch h.State {
			case store.HoldParked:
				s.Parked++
			case store.HoldBlocked:
				s.Blocked++
			case store.HoldRetry, store.HoldDelivered: // counted by deliveries
			}
		}
	})
}
