// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/reprise-go/reprise"
)

const (
	// repeatPause spaces a client's repeats.
	repeatPause = 5 * time.Millisecond
	// meanwhile is how often a client repeats while an attempt is held.
	meanwhile = 3
)

// run is one intent on its way.
type run struct {
	service  Service
	patience time.Duration
	order    Order
	// answer is what was acknowledged, and acked says that something was.
	answer string
	acked  bool
	// doubtful says that an attempt was not answered with certainty, so that an
	// effect proves nothing against a later refusal.
	doubtful   bool
	instances  []Instance
	late       []<-chan Answer
	violations []string
}

// intent runs one intent whose first attempts meet one fault each. It returns
// which faults struck and what is wrong with what is left. An error means that the
// run could not be made.
func (e *enumeration) intent(ctx context.Context, faults ...Injection) (hits []bool, violations []string, err error) {
	r := &run{service: e.service, patience: e.options.Patience, order: newOrder()}
	defer func() {
		for _, i := range r.instances {
			i.Release()
		}
		for _, i := range r.instances {
			_ = i.Close() // an instance that was broken on purpose may say so
		}
	}()
	for _, f := range faults {
		i, err := e.service.Start(ctx, f)
		if err != nil {
			return nil, nil, fmt.Errorf("starting an instance for %+v: %w", f, err)
		}
		r.instances = append(r.instances, i)
		r.attempt(ctx, i)
		hits = append(hits, i.Hit())
	}
	r.finish(ctx, e.healthy)
	return hits, r.violations, nil
}

// attempt makes the client's attempt on an instance. A client whose attempt is
// held does not wait for it.
func (r *run) attempt(ctx context.Context, i Instance) {
	answered := make(chan Answer, 1)
	go func() { answered <- i.Attempt(ctx, r.order) }()
	select {
	case a := <-answered:
		r.judge(ctx, a)
	case <-i.Held():
		r.doubtful = true
		r.late = append(r.late, answered)
	}
}

// judge holds an answer to what the database says.
func (r *run) judge(ctx context.Context, a Answer) {
	switch a.Outcome {
	case reprise.Succeeded:
		if r.acked && a.Body != r.answer {
			r.violate("answered %q and then %q", r.answer, a.Body)
		}
		r.acked, r.answer = true, a.Body
		r.effects(ctx, "acknowledged, but", r.service.Want())
	case reprise.NotProcessed:
		if !r.acked && !r.doubtful {
			r.effects(ctx, "refused ("+a.Detail+"), but", nil)
		}
	case reprise.Rejected:
		r.violate("the order was decided against: %s", a.Detail)
	default:
		r.doubtful = true
	}
}

// effects compares what the order has left.
func (r *run) effects(ctx context.Context, when string, want Effects) {
	got, err := r.service.Effects(ctx, r.order)
	if err != nil {
		r.violate("the effects can't be counted: %v", err)
		return
	}
	maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(got, want) {
		r.violate("%s the effects are %v, want %v", when, got, want)
	}
}

func (r *run) violate(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// finish repeats the intent until it is settled, on a healthy instance and then on
// those that survived their fault, lets go of what was held, and counts.
func (r *run) finish(ctx context.Context, healthy Program) {
	if len(r.late) > 0 {
		for n := 0; n < meanwhile && !r.acked; n++ {
			r.judge(ctx, healthy.Attempt(ctx, r.order))
		}
	}
	for _, i := range r.instances {
		i.Release()
	}
	for _, answered := range r.late {
		r.judge(ctx, <-answered)
	}
	r.settle(ctx, healthy, func() bool { return true })
	for _, i := range r.instances {
		r.settle(ctx, i, i.Alive)
	}
	r.effects(ctx, "in the end", r.service.Want())
}

// settle repeats the intent on a program until it succeeds, as long as the program
// lives.
func (r *run) settle(ctx context.Context, i Program, alive func() bool) {
	for deadline := time.Now().Add(r.patience); alive(); time.Sleep(repeatPause) {
		a := i.Attempt(ctx, r.order)
		r.judge(ctx, a)
		if a.Outcome == reprise.Succeeded {
			return
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			r.violate("stuck: %s", a.Detail)
			return
		}
	}
}
