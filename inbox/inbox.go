// SPDX-License-Identifier: Apache-2.0

// Package inbox lets a consumer recognise a message that it has handled before,
// so that what is delivered at least once has its effect once.
//
// The receipt of a message is inserted before its effect and in the same
// transaction (rule I1): a redelivery finds it, one that arrives while the first
// is still at work waits for it, and an effect that is rolled back leaves no
// receipt, so that the next delivery runs it (rule I5). A lock in place of the
// receipt would stop overlap but not repetition, and a receipt in a transaction
// of its own would lose messages.
package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/backoff"
	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
)

// CodePayloadDiffers is the code of ErrPayloadDiffers.
const CodePayloadDiffers reprise.Code = "payload-differs"

// ErrPayloadDiffers is matched by the error of Do for a message whose id was
// handled before with another content (rule I3). Nothing was executed. It is a
// decision, outcome reprise.Rejected: no repetition will be answered otherwise,
// so the message should be set aside and its producer asked.
var ErrPayloadDiffers error = &reprise.Error{Code: CodePayloadDiffers, Outcome: reprise.Rejected}

// Disposition says what became of a message. Both mean that it is dealt with
// and may be acknowledged; the zero value means that it is not.
type Disposition uint8

const (
	// Handled: the effect was committed by this call.
	Handled Disposition = iota + 1
	// Duplicate: it was committed by an earlier one, and nothing was executed.
	Duplicate
)

// String returns the name of d.
func (d Disposition) String() string {
	switch d {
	case Handled:
		return "handled"
	case Duplicate:
		return "duplicate"
	}
	return "unhandled"
}

// Config holds the options of an Inbox. The zero value, and nil, are sound.
type Config struct {
	// MaxReruns is how often a transaction that the database ended in favour of
	// another one is run again at most, with growing pauses of up to 100 ms, and
	// none begins later than 5 s after the first run: the next delivery goes on.
	// Defaults to 10.
	MaxReruns int
}

const (
	// rerunBase and rerunLimit space the re-runs of a lost conflict.
	rerunBase, rerunLimit = time.Millisecond, 100 * time.Millisecond
	// rerunFor ends them well before a relay's Timeout (30 s by default) would
	// turn a conflict, of which it is known that nothing was kept, into silence.
	rerunFor = 5 * time.Second
)

// Inbox handles the messages of one consumer. It is safe for concurrent use, also
// by several processes on one database.
type Inbox[TTx any] struct {
	driver   store.Driver[TTx]
	consumer string
	config   Config
}

// Func is the effect of a message. It writes through tx alone; messages that it
// enqueues with outbox.Outbox are committed with it. It may run several times,
// but all runs but one are rolled back. It must not return nil when ctx ended
// before its work was done.
//
// It must not end tx, also not by the usual "defer tx.Rollback()": returning nil
// commits and returning an error rolls back.
type Func[TTx any] func(ctx context.Context, tx TTx, m reprise.Message) error

// New returns the inbox of a consumer, the name of one party that handles each
// message once: receipts are unique by consumer, source and id (rule I2), and
// renaming a consumer makes it handle again what is delivered again. c may be
// nil.
func New[TTx any](d store.Driver[TTx], consumer string, c *Config) (*Inbox[TTx], error) {
	b := &Inbox[TTx]{driver: d, consumer: consumer}
	if c != nil {
		b.config = *c
	}
	switch {
	case d == nil:
		return nil, errors.New("inbox: the driver is nil")
	case consumer == "" || len(consumer) > 255:
		return nil, fmt.Errorf("inbox: the consumer's name has %d bytes; give it 1 to 255, such as \"fulfilment\"", len(consumer))
	case b.config.MaxReruns < 0:
		return nil, fmt.Errorf("inbox: Config.MaxReruns is %d; give a positive number, or 0 for 10", b.config.MaxReruns)
	case b.config.MaxReruns == 0:
		b.config.MaxReruns = 10
	}
	return b, nil
}

// Do runs fn once for all deliveries of m, in one transaction with the receipt.
//
// A nil error means that m may be acknowledged. Any error means that it must
// not be, whether the effect happened or not: the next delivery finds out (rule
// I4). The error is fn's own, ErrPayloadDiffers, an error with the outcome
// reprise.Rejected for a message that can't be told apart from others, or one of
// the store's.
func (b *Inbox[TTx]) Do(ctx context.Context, m reprise.Message, fn Func[TTx]) (Disposition, error) {
	if m.ID == "" || m.Source == "" {
		return 0, &reprise.Error{
			Code: reprise.CodeInvalid, Op: "inbox.Do", Outcome: reprise.Rejected,
			Detail: "the message has no id or no source, so that a redelivery of it could not be recognised",
		}
	}
	receipt := store.Receipt{Consumer: b.consumer, Source: m.Source, MessageID: m.ID, Digest: digest(m)}
	last := time.Now().Add(rerunFor)
	for run := 0; ; run++ {
		done, err := b.once(ctx, receipt, m, fn)
		if err == nil {
			return done, nil
		}
		if !errors.Is(err, store.ErrConflict) || run == b.config.MaxReruns || !pause(ctx, run, last) {
			return 0, err
		}
	}
}

// pause waits before re-run n, from 0. It returns false when ctx ended or the
// re-run would begin after last.
func pause(ctx context.Context, n int, last time.Time) bool {
	d := backoff.Jittered(backoff.Ceiling(rerunBase, rerunLimit, n))
	if time.Now().Add(d).After(last) {
		return false
	}
	return backoff.Sleep(ctx, d) == nil
}

func (b *Inbox[TTx]) once(ctx context.Context, r store.Receipt, m reprise.Message, fn Func[TTx]) (Disposition, error) {
	var done Disposition
	err := b.driver.Transact(ctx, func(ctx context.Context, tx TTx) error {
		fresh, stored, err := b.driver.Accept(ctx, tx, r)
		if err != nil {
			return err
		}
		if !fresh {
			done = Duplicate
			if stored != r.Digest {
				return payloadDiffers(r)
			}
			return nil
		}
		done = Handled
		failpoint.Hit("inbox/accepted")
		if err := fn(ctx, tx, m); err != nil {
			return err
		}
		failpoint.Hit("inbox/handled")
		// A function that gave up because its time was over, and said so with nil,
		// has not done its work.
		return ctx.Err()
	})
	if err != nil {
		return 0, err
	}
	return done, nil
}

func payloadDiffers(r store.Receipt) error {
	return &reprise.Error{
		Code: CodePayloadDiffers, Op: "inbox.Do", Outcome: reprise.Rejected,
		Detail: fmt.Sprintf("message %q of %q was handled before by %q with another content", r.MessageID, r.Source, r.Consumer),
	}
}

// digest covers what makes two messages the same event. Headers, time and
// subject are left out: carriers add and reword them on the way.
func digest(m reprise.Message) [32]byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(m.ID), []byte(m.Source), []byte(m.Type), m.Data} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return [32]byte(h.Sum(nil))
}

// Handler is an inbox with its effect: a sink that a relay in the same process
// can deliver to.
type Handler[TTx any] struct {
	inbox *Inbox[TTx]
	fn    Func[TTx]
}

// Handler returns fn behind b.
func (b *Inbox[TTx]) Handler(fn Func[TTx]) *Handler[TTx] { return &Handler[TTx]{inbox: b, fn: fn} }

// Deliver handles m and returns nil once its effect is committed, by this call
// or by an earlier one.
func (h *Handler[TTx]) Deliver(ctx context.Context, m reprise.Message) error {
	_, err := h.inbox.Do(ctx, m, h.fn)
	return err
}
