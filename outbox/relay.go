// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/backoff"
	"github.com/reprise-go/reprise/store"
)

// Order says what happens to later messages of a subject while an earlier one is
// held.
type Order string

const (
	// OrderBlock: they wait, unattempted, until the earlier one is delivered or an
	// operator decides about it. It is the zero value's meaning.
	OrderBlock Order = "block"
	// OrderSkip: they go on, so that a message that is tried again arrives after
	// later ones.
	OrderSkip Order = "skip"
)

// RelayConfig holds the options of a Relay. The zero value, and nil, are sound.
type RelayConfig struct {
	// Owner names this relay in the table of slots. It must differ between relays.
	// Defaults to the host name, the process id and a random part.
	Owner string
	// Lease is how long a slot stays with a relay that has died. It is renewed
	// every third of it. Defaults to 10 s; at least 100 ms.
	Lease time.Duration
	// Slots is how many slots this relay takes at most. Defaults to all of them.
	Slots int
	// Batch is how many messages are fetched and recorded together. It is also how
	// many may be delivered twice when the relay dies. Defaults to 200.
	Batch int
	// Workers is how many deliveries run at once, beside those that Slow counts.
	// Defaults to 16.
	Workers int
	// Slow is how many deliveries that have outlasted Patience may be under way
	// beside Workers. Each keeps its message in memory, and a call to the
	// destination open. Once there are as many, further slow ones keep their worker
	// until they end, at the latest after Timeout, and when Workers of them do,
	// messages of all subjects wait. Defaults to 256.
	Slow int

	// Order defaults to OrderBlock.
	Order Order
	// MaxAttempts is after how many failed deliveries a message is parked.
	// Defaults to 10.
	MaxAttempts int
	// RetryBase and RetryCap bound the wait before a message is tried again: a
	// random part of RetryBase doubled with each attempt, but at most RetryCap.
	// Default to 1 s and 10 min.
	RetryBase, RetryCap time.Duration
	// Timeout is how long one delivery may take. Defaults to 30 s.
	Timeout time.Duration
	// Patience is how long one delivery may hold up messages of other subjects.
	// After it they go on, and the slow one is left to end by itself, as far as
	// Slow allows. Defaults to 1 s.
	Patience time.Duration
	// Probe is the longest pause between two deliveries that find out whether an
	// unavailable destination is back. Defaults to 10 s.
	Probe time.Duration

	// PollMin and PollMax bound the pause between two looks at the table when
	// nothing wakes the relay: it starts with the first and doubles up to the
	// second. Default to 10 ms and 1 s.
	PollMin, PollMax time.Duration
	// Drain is how long deliveries may go on after Run's context has ended, and
	// how long one write to the table may take. Defaults to 5 s.
	Drain time.Duration

	// Observe, if not nil, is told of every delivery that ended. It is called
	// concurrently and must be quick.
	Observe func(Delivery)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Relay moves committed messages from an outbox to a sink. Any number of relays
// may work on one outbox: each slot has one owner at a time.
type Relay struct {
	store   store.Relay
	sink    Sink
	config  RelayConfig
	gate    *gate
	workers chan struct{} // one token per delivery under way
	slow    chan struct{} // where those that were left put theirs, while there is room
	running atomic.Bool

	slotsMu sync.Mutex
	slots   map[*slot]struct{}

	statsMu sync.Mutex
	stats   Stats
}

// NewRelay returns a relay from s to sink. c may be nil. The error says which
// option is wrong.
func NewRelay(s store.Relay, sink Sink, c *RelayConfig) (*Relay, error) {
	if s == nil || sink == nil {
		return nil, errors.New("outbox: a relay needs a store and a sink")
	}
	var config RelayConfig
	if c != nil {
		config = *c
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	return &Relay{
		store: s, sink: sink, config: config,
		gate:    newGate(config.PollMin, max(config.Probe, config.PollMin)),
		workers: make(chan struct{}, config.Workers),
		slow:    make(chan struct{}, config.Slow),
		slots:   make(map[*slot]struct{}),
		stats:   Stats{Wakes: make(map[Wake]uint64)},
	}, nil
}

// complete fills in the defaults and checks the rest.
func (c *RelayConfig) complete() error {
	err := cmp.Or(
		option("Lease", &c.Lease, 10*time.Second),
		option("Slots", &c.Slots, math.MaxInt32),
		option("Batch", &c.Batch, 200),
		option("Workers", &c.Workers, 16),
		option("Slow", &c.Slow, 256),
		option("MaxAttempts", &c.MaxAttempts, 10),
		option("RetryBase", &c.RetryBase, time.Second),
		option("RetryCap", &c.RetryCap, 10*time.Minute),
		option("Timeout", &c.Timeout, 30*time.Second),
		option("Patience", &c.Patience, time.Second),
		option("Probe", &c.Probe, 10*time.Second),
		option("PollMin", &c.PollMin, 10*time.Millisecond),
		option("PollMax", &c.PollMax, time.Second),
		option("Drain", &c.Drain, 5*time.Second),
	)
	switch {
	case err != nil:
		return err
	case c.Lease < 100*time.Millisecond:
		return fmt.Errorf("outbox: RelayConfig.Lease is %v; it can't be renewed in time below 100ms", c.Lease)
	case c.PollMin > c.PollMax:
		return fmt.Errorf("outbox: RelayConfig.PollMin is %v, longer than PollMax of %v", c.PollMin, c.PollMax)
	case c.RetryBase > c.RetryCap:
		return fmt.Errorf("outbox: RelayConfig.RetryBase is %v, longer than RetryCap of %v", c.RetryBase, c.RetryCap)
	case c.Order == "":
		c.Order = OrderBlock
	case c.Order != OrderBlock && c.Order != OrderSkip:
		return fmt.Errorf("outbox: RelayConfig.Order is %q; use OrderBlock or OrderSkip", c.Order)
	}
	if c.Owner == "" {
		host, _ := os.Hostname() // The random part alone would do.
		c.Owner = fmt.Sprintf("%s/%d/%s", host, os.Getpid(), reprise.NewKey())
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

// option gives an option its default for 0 and refuses it below.
func option[T int | time.Duration](name string, value *T, def T) error {
	if *value < 0 {
		return fmt.Errorf("outbox: RelayConfig.%s is %v; give a positive value, or 0 for %v", name, *value, def)
	}
	if *value == 0 {
		*value = def
	}
	return nil
}

// Run delivers until ctx ends. Then it takes nothing more on, lets the batches
// that have begun end, for at most Drain, records them, and gives its slots up.
//
// It returns nil when all of that was done. An error means that some confirmed
// messages could not be recorded and will be delivered again, or that a slot
// stays leased until its lease lapses. Errors of the store before that are
// logged and overcome. A relay runs once at a time.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: this relay is running already")
	}
	defer r.running.Store(false)

	var background sync.WaitGroup
	wake := r.store.Wake() // before the first look, so that no commit falls between them
	background.Go(func() { r.forwardWakes(ctx, wake) })
	var owned sync.WaitGroup
	var errsMu sync.Mutex
	var errs []error
	for ctx.Err() == nil {
		for _, s := range r.acquire(ctx) {
			owned.Go(func() {
				err := s.run(ctx)
				r.remove(s)
				errsMu.Lock()
				defer errsMu.Unlock()
				errs = append(errs, err)
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Jittered(r.config.PollMax)):
		}
	}
	owned.Wait()
	background.Wait()
	return errors.Join(errs...)
}

// Backlog counts what has not been delivered, by the table.
func (r *Relay) Backlog(ctx context.Context) (store.Backlog, error) { return r.store.Backlog(ctx) }

// acquire takes over slots. One of them may be one that this relay has lost and
// does not know it yet, or has not wound up: the new holding begins when the old
// one has ended, because two of them would deliver one subject side by side.
func (r *Relay) acquire(ctx context.Context) []*slot {
	r.slotsMu.Lock()
	room := r.config.Slots - len(r.slots)
	r.slotsMu.Unlock()
	if room <= 0 {
		return nil
	}
	// Not under ctx: a slot that is granted to a call which was cancelled would
	// stay leased to nobody.
	acquiring, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Drain)
	defer cancel()
	began := time.Now()
	held, err := r.store.Acquire(acquiring, r.config.Owner, r.config.Lease, room)
	if err != nil {
		r.config.Logger.Warn("outbox: could not acquire slots; trying again", "error", err)
		return nil
	}
	r.slotsMu.Lock()
	defer r.slotsMu.Unlock()
	slots := make([]*slot, len(held))
	for i, h := range held {
		s := newSlot(ctx, r, h, began)
		newest := int64(-1)
		for old := range r.slots {
			if old.held.Number != h.Number {
				continue
			}
			old.drop()
			if old.held.Epoch > newest { // which itself waits for the ones before
				newest, s.after = old.held.Epoch, old.ended
			}
		}
		r.slots[s] = struct{}{}
		slots[i] = s
	}
	r.count(func(s *Stats) { s.Taken += uint64(len(held)) })
	return slots
}

func (r *Relay) remove(s *slot) {
	r.slotsMu.Lock()
	defer r.slotsMu.Unlock()
	delete(r.slots, s)
}

// forwardWakes hands every wake-up to all slots: it does not say which of them
// has something to do.
func (r *Relay) forwardWakes(ctx context.Context, wake <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		r.slotsMu.Lock()
		for s := range r.slots {
			notify(s.wakeups)
		}
		r.slotsMu.Unlock()
	}
}

// gateChanged logs that the destination went away or came back.
func (r *Relay) gateChanged(err error) {
	if isUnavailable(err) {
		r.config.Logger.Warn("outbox: the destination is unavailable; pausing", "error", err)
		return
	}
	r.config.Logger.Info("outbox: the destination answers again")
}
