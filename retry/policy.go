// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
)

// Options configure a Policy. The zero value is sound.
type Options struct {
	// MaxAttempts is how many attempts a call may make, the first included.
	// Waiting for an attempt in progress elsewhere does not count while there is
	// a deadline (rule C7). 1 turns retries off. Defaults to 4.
	MaxAttempts int

	// Base and Cap are those of Backoff. Defaults to 50 ms and 20 s.
	Base, Cap time.Duration

	// Deadline bounds the whole call: all attempts and the waits between them.
	// The deadline of the call's context counts too, and the earlier one wins.
	// Defaults to none.
	Deadline time.Duration

	// AttemptTimeout bounds each attempt. One that takes longer ends Unknown if
	// it was sent. It must not be longer than Deadline. Defaults to none.
	AttemptTimeout time.Duration

	// MinAttempt is the shortest time that an attempt is worth starting with. A
	// wait that would leave less than it before the deadline is not begun.
	// Defaults to 10 ms.
	MinAttempt time.Duration

	// MaxWait is the longest wait that the other side may ask for. A call that is
	// asked to wait longer stops at once and says until when, even if its deadline
	// would allow the wait. Defaults to 5 minutes.
	MaxWait time.Duration

	// Safety is what Do may assume when an attempt's effect is Unknown: Safe and
	// Idempotent operations are sent again, Keyed ones too, which promises that
	// the other side keeps a ledger of keys; Unsafe ones are not (rule C8).
	// Defaults to contract.Unsafe.
	Safety contract.Safety

	// Classify judges the attempts of Do. Defaults to Classify.
	Classify Classifier

	// OnAttempt is told of every attempt when it has ended, in the goroutine of
	// the call. It must be safe for concurrent use. Defaults to nothing.
	OnAttempt func(reprise.Attempt)

	// Rand returns a number in [0, 1) and must be safe for concurrent use.
	// Defaults to math/rand/v2.Float64.
	Rand func() float64
}

// Policy says how calls are retried. It is immutable, holds nothing of a single
// call, and is safe for concurrent use. Make one with New; a nil *Policy stands
// for Interactive.
type Policy struct {
	o Options
}

// New returns a Policy. A nil o is the zero Options. The error says which
// option can't be meant.
func New(o *Options) (*Policy, error) {
	if o == nil {
		o = &Options{}
	}
	p := &Policy{o: *o}
	if err := validate(o); err != nil {
		return nil, err
	}
	setDefaults(&p.o)
	switch {
	case p.o.Cap < p.o.Base:
		return nil, fmt.Errorf("retry: Cap is %v, which is shorter than Base, %v; a wait grows from Base to Cap", p.o.Cap, p.o.Base)
	case p.o.Deadline > 0 && p.o.AttemptTimeout > p.o.Deadline:
		return nil, fmt.Errorf("retry: AttemptTimeout is %v, which is longer than Deadline, %v; an attempt is a part of the call",
			p.o.AttemptTimeout, p.o.Deadline)
	case p.o.Deadline > 0 && p.o.MinAttempt > p.o.Deadline:
		return nil, fmt.Errorf("retry: MinAttempt is %v, which is longer than Deadline, %v; no attempt could begin", p.o.MinAttempt, p.o.Deadline)
	}
	return p, nil
}

func validate(o *Options) error {
	if o.MaxAttempts < 0 {
		return fmt.Errorf("retry: MaxAttempts is %d; use 1 for a single attempt, or 0 for the default", o.MaxAttempts)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"Base", o.Base}, {"Cap", o.Cap}, {"Deadline", o.Deadline},
		{"AttemptTimeout", o.AttemptTimeout}, {"MinAttempt", o.MinAttempt}, {"MaxWait", o.MaxWait},
	} {
		if f.value < 0 {
			return fmt.Errorf("retry: %s is %v; it must not be negative", f.name, f.value)
		}
	}
	switch o.Safety {
	case "", contract.Safe, contract.Idempotent, contract.Keyed, contract.Unsafe:
		return nil
	default:
		return fmt.Errorf("retry: Safety is %q; use safe, idempotent, keyed or unsafe", o.Safety)
	}
}

func setDefaults(o *Options) {
	orDefault(&o.MaxAttempts, 4)
	orDefault(&o.Base, 50*time.Millisecond)
	orDefault(&o.Cap, max(20*time.Second, o.Base))
	orDefault(&o.MinAttempt, 10*time.Millisecond)
	orDefault(&o.MaxWait, 5*time.Minute)
	orDefault(&o.Safety, contract.Unsafe)
	if o.Classify == nil {
		o.Classify = Classify
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Interactive is for a call that a person waits for: 4 attempts within 10 s, 5 s
// each, and waits of at most 1 s.
func Interactive() *Policy { return interactive }

// Background is for work that nobody waits for: 20 attempts within 5 minutes,
// 30 s each, and waits of at most 20 s.
func Background() *Policy { return background }

var (
	interactive = mustNew(Options{
		Cap: time.Second, Deadline: 10 * time.Second, AttemptTimeout: 5 * time.Second,
	})
	background = mustNew(Options{
		MaxAttempts: 20, Base: 200 * time.Millisecond, Deadline: 5 * time.Minute, AttemptTimeout: 30 * time.Second,
	})
)

func mustNew(o Options) *Policy {
	p, err := New(&o)
	if err != nil {
		panic(err)
	}
	return p
}

// Options returns the options of p with their defaults filled in, to make a
// policy that differs in a few of them.
func (p *Policy) Options() Options { return p.orDefault().o }

func (p *Policy) orDefault() *Policy {
	if p == nil {
		return interactive
	}
	return p
}
