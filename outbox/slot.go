// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/backoff"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
)

var (
	// errDrained ends the work of a slot whose relay was stopped long enough ago.
	errDrained = errors.New("outbox: time to drain is up")
	// errUnrecorded: what was delivered could not be recorded, or nobody knows.
	errUnrecorded = errors.New("outbox: what was delivered may be delivered again")
)

// slot delivers the messages of one slot for as long as its lease holds. Fields
// without a comment on locking belong to the goroutine of run.
type slot struct {
	relay *Relay
	held  store.Slot
	log   *slog.Logger

	lease   atomic.Pointer[time.Time] // until when the slot is ours for certain
	lost    atomic.Bool
	wakeups chan struct{} // a commit of this process

	// work carries the deliveries: they may finish after the relay was stopped, but
	// not after the lease is gone, nor for ever. stop ends it.
	work  context.Context
	stop  context.CancelCauseFunc
	after <-chan struct{} // when an earlier holding of this slot here has ended; may be nil
	ended chan struct{}   // when this one has

	workers sync.WaitGroup // deliveries under way, left ones too
	lateMu  sync.Mutex
	late    []store.Hold  // verdicts on messages that had been left
	settled chan struct{} // something was added to late

	loaded   bool                          // subjects is what the store says
	subjects map[string]bool               // subjects with held messages, or more
	left     map[messageID]reprise.Message // messages left, with their delivery still under way
	dueAt    time.Time                     // when to look for due messages
	retries  []time.Time                   // when held messages of ours will be due
	poll     time.Duration                 // the next wait
	source   Wake                          // why the last wait ended
}

// messageID is what a message is recognised by (rule O2).
type messageID struct{ source, id string }

func idOf(m reprise.Message) messageID { return messageID{m.Source, m.ID} }

func newSlot(ctx context.Context, r *Relay, held store.Slot, began time.Time) *slot {
	s := &slot{
		relay: r, held: held,
		log:     r.config.Logger.With("slot", held.Number, "epoch", held.Epoch),
		wakeups: make(chan struct{}, 1),
		settled: make(chan struct{}, 1),
		left:    make(map[messageID]reprise.Message),
		poll:    r.config.PollMin,
		source:  WakeTakeover,
		ended:   make(chan struct{}),
	}
	s.work, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.extend(began)
	return s
}

// drop ends the work of a slot that is not ours any more.
func (s *slot) drop() {
	s.lost.Store(true)
	s.stop(store.ErrLeaseLost)
}

// run works until ctx ends or the lease is lost, and gives the slot up at the end
// of a batch (O4). It returns an error if what was delivered could not be recorded.
func (s *slot) run(ctx context.Context) error { //nolint:contextcheck // work outlives ctx on purpose: see the field.
	defer close(s.ended)
	work := s.work
	var background sync.WaitGroup
	background.Go(func() { s.renew(work) })
	background.Go(func() {
		select {
		case <-work.Done():
			return
		case <-ctx.Done():
		}
		select {
		case <-work.Done():
		case <-time.After(s.relay.config.Drain):
			s.stop(errDrained)
		}
	})

	if s.after != nil {
		<-s.after
	}
	err := s.loop(ctx, work)
	s.workers.Wait()
	if err == nil && !s.lost.Load() {
		err = s.settle(work) //nolint:contextcheck // the same
	}
	if errors.Is(err, store.ErrLeaseLost) {
		s.drop()
	}
	s.stop(nil)
	background.Wait()
	if s.lost.Load() {
		s.relay.count(func(c *Stats) { c.Lost++ })
		s.log.Warn("outbox: lost the slot; what was in delivery may be delivered twice")
		return nil
	}
	return errors.Join(err, s.release(ctx))
}

func (s *slot) loop(ctx, work context.Context) error {
	failures := 0
	for ctx.Err() == nil && work.Err() == nil {
		found, err := s.round(ctx, work)
		switch {
		case errors.Is(err, store.ErrLeaseLost):
			s.drop()
			return nil
		case errors.Is(err, errUnrecorded) && (ctx.Err() != nil || work.Err() != nil):
			return err
		case err != nil:
			failures++
			s.log.Warn("outbox: the store failed; trying again", "error", err)
			s.rest(ctx, work, failures)
		case found:
			failures, s.source = 0, WakeBacklog
		default:
			failures = 0
			s.wait(ctx, work)
		}
	}
	return nil
}

// round handles what has become due and then one page of new messages. found
// means that there may be more at once.
func (s *slot) round(ctx, work context.Context) (found bool, err error) {
	if err := s.load(ctx); err != nil {
		return false, err
	}
	if err := s.settle(work); err != nil {
		return false, err
	}
	drained := false
	if !time.Now().Before(s.dueAt) {
		if drained, err = s.drain(ctx, work); err != nil {
			return false, err
		}
	}
	full, err := s.page(ctx, work)
	return drained || full, err
}

// load reads what is held, at the start and after a write whose outcome is
// unknown. Late verdicts are dropped then: their messages are delivered again.
func (s *slot) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	s.workers.Wait()
	s.takeLate()
	clear(s.left)
	if err := s.readSubjects(ctx); err != nil {
		return err
	}
	s.loaded, s.dueAt = true, time.Now()
	return nil
}

func (s *slot) readSubjects(ctx context.Context) error {
	subjects, err := s.relay.store.Subjects(ctx, s.held)
	if err != nil {
		return fmt.Errorf("read held subjects: %w", err)
	}
	if subjects == nil {
		subjects = make(map[string]bool)
	}
	s.subjects = subjects
	return nil
}

// settle records the verdicts on messages that had been left.
func (s *slot) settle(work context.Context) error {
	verdicts := s.takeLate()
	if len(verdicts) == 0 {
		return nil
	}
	return s.update(work, verdicts)
}

func (s *slot) takeLate() []store.Hold {
	s.lateMu.Lock()
	defer s.lateMu.Unlock()
	verdicts := s.late
	s.late = nil
	for _, v := range verdicts {
		delete(s.left, idOf(v.Message))
	}
	return verdicts
}

// drain delivers the held messages that are due.
func (s *slot) drain(ctx, work context.Context) (found bool, err error) {
	due, err := s.relay.store.Due(ctx, s.held, s.relay.config.Batch)
	if err != nil {
		return false, fmt.Errorf("read due messages: %w", err)
	}
	s.plan()
	underWay := s.underWay()
	due = slices.DeleteFunc(due, func(h store.Hold) bool {
		_, left := s.left[idOf(h.Message)]
		return left || underWay[h.Message.Subject]
	})
	if len(due) == 0 {
		return false, nil
	}
	b := newBatch(due, func(string) bool { return false })
	s.poll = s.relay.config.PollMin
	s.deliver(work, ctx.Done(), b, WakeHold)
	if changes := b.decided(); len(changes) > 0 {
		return true, s.update(work, changes)
	}
	return false, nil
}

// update records what became of held messages.
func (s *slot) update(work context.Context, changes []store.Hold) error {
	err := s.record(work, "update held messages", func(ctx context.Context) error {
		return s.relay.store.Update(ctx, s.held, changes)
	})
	if err != nil {
		return err
	}
	s.relay.recorded(changes)
	s.remember(changes)
	s.dueAt = time.Now()
	if len(s.subjects) > 0 && work.Err() == nil {
		return s.readSubjects(work)
	}
	return nil
}

// page delivers the next new messages and moves the cursor past them. full means
// that there may be more.
func (s *slot) page(ctx, work context.Context) (full bool, err error) {
	p, err := s.relay.store.Fetch(ctx, s.held, s.relay.config.Batch)
	if err != nil {
		return false, fmt.Errorf("fetch: %w", err)
	}
	if len(p.Messages) == 0 {
		return false, nil
	}
	failpoint.Hit("outbox/fetched")
	holds := make([]store.Hold, len(p.Messages))
	for i, m := range p.Messages {
		holds[i].Message, holds[i].Unreadable = m, p.Unreadable[i]
	}
	b := newBatch(holds, s.isHeld())
	s.poll = s.relay.config.PollMin
	s.deliver(work, ctx.Done(), b, s.source)
	verdicts, progress := b.complete()
	if !progress {
		return false, nil
	}
	holds = slices.DeleteFunc(verdicts, func(v store.Hold) bool { return v.State == store.HoldDelivered })
	failpoint.Hit("outbox/delivered")
	err = s.record(work, "advance", func(ctx context.Context) error {
		return s.relay.store.Advance(ctx, s.held, p, holds)
	})
	if err != nil {
		return false, err
	}
	failpoint.Hit("outbox/recorded")
	s.relay.recorded(holds)
	s.remember(holds)
	return len(p.Messages) == s.relay.config.Batch, nil
}

// underWay returns the subjects of messages that were left and are not done: in
// either order nothing else of them may be delivered.
func (s *slot) underWay() map[string]bool {
	subjects := make(map[string]bool, len(s.left))
	for _, m := range s.left {
		if m.Subject != "" {
			subjects[m.Subject] = true
		}
	}
	return subjects
}

// isHeld says of which subjects new messages must wait.
func (s *slot) isHeld() func(subject string) bool {
	underWay := s.underWay()
	return func(subject string) bool {
		return underWay[subject] || (s.relay.config.Order == OrderBlock && s.subjects[subject])
	}
}

// remember keeps in memory what was written to the hold table. Only the owner of
// a slot adds to it, so that most rounds need not ask; who else takes something
// out is noticed within PollMax.
func (s *slot) remember(holds []store.Hold) {
	now := time.Now()
	for _, h := range holds {
		if h.State == store.HoldDelivered {
			continue
		}
		if h.Message.Subject != "" {
			s.subjects[h.Message.Subject] = true
		}
		if h.State == store.HoldRetry {
			s.retries = append(s.retries, now.Add(h.Delay))
			s.dueAt = earlier(s.dueAt, now.Add(h.Delay))
		}
	}
}

// plan sets when to look for due messages next, unless some are due now.
func (s *slot) plan() {
	now := time.Now()
	s.dueAt = now.Add(s.relay.config.PollMax)
	s.retries = slices.DeleteFunc(s.retries, func(at time.Time) bool { return !at.After(now) })
	for _, at := range s.retries {
		s.dueAt = earlier(s.dueAt, at)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// record makes one fenced write, again and again until it is known to be kept or
// refused. It is detached from every cancellation: a confirmation that is not
// recorded because of a shutdown is a second delivery.
func (s *slot) record(work context.Context, what string, write func(ctx context.Context) error) error {
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(work), s.relay.config.Drain)
		err := write(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrLeaseLost):
			return err
		case errors.Is(err, store.ErrCommitUnknown) || work.Err() != nil:
			s.loaded = false
			return fmt.Errorf("%w: %s: %w", errUnrecorded, what, err)
		}
		s.log.Warn("outbox: could not "+what+"; trying again", "error", err)
		s.rest(work, work, attempt)
	}
}

// wait sleeps until there may be something to do: a commit in this process, a
// left message's end, a due time, or the next poll, which is the floor that
// needs nobody's help. Polls start short and grow longer.
func (s *slot) wait(ctx, work context.Context) {
	poll, due := backoff.Jittered(s.poll), max(0, time.Until(s.dueAt))
	timer := time.NewTimer(min(poll, due))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-work.Done():
	case <-s.settled:
	case <-s.wakeups:
		s.poll, s.source = s.relay.config.PollMin, WakeCommit
	case <-timer.C:
		s.source = WakePoll
		if poll <= due {
			s.poll = min(2*s.poll, s.relay.config.PollMax)
		}
	}
}

// rest waits after the given number of failures in a row.
func (s *slot) rest(ctx, work context.Context, failures int) {
	select {
	case <-ctx.Done():
	case <-work.Done():
	case <-time.After(backoff.Jittered(backoff.Ceiling(s.relay.config.PollMin, s.relay.config.PollMax, failures-1))):
	}
}

// notify leaves a value in c unless there is one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
