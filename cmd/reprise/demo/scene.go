// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/torture/proxy"
)

// scenario is one of the seven worst breakpoints.
type scenario struct {
	id, title string
	play      func(ctx context.Context, s *scene) error
}

// scene is one run of a scenario: it plays, tells, and keeps what to report.
type scene struct {
	*world

	result Result
	story  *story
	ref    string
}

// play runs one scenario and counts its effects.
func (w *world) play(ctx context.Context, sc scenario, st *story) Result {
	s := &scene{
		world: w, story: st, ref: "demo-" + sc.id,
		result: Result{ID: sc.id, Title: sc.title, Intents: 1, SameID: true},
	}
	st.title(sc.id, sc.title)
	began := time.Now()
	err := sc.play(ctx, s)
	w.proxy.SetPlan(nil)
	if err == nil {
		err = s.countEffects(ctx)
	}
	s.result.Seconds = seconds(time.Since(began))
	if err != nil {
		s.wrong("the scenario could not be played to its end: %v", err)
	}
	s.result.judge()
	st.verdict(s.result)
	return s.result
}

// countEffects asks what happened, unless the scenario counted by itself.
func (s *scene) countEffects(ctx context.Context) error {
	if s.result.Intents != 1 {
		return nil
	}
	e, err := s.effects(ctx, s.ref)
	if err != nil {
		return err
	}
	s.take(e)
	return nil
}

// take turns effects into the counts of the report.
func (s *scene) take(e *effects) {
	s.result.Orders, s.result.Charges = e.Orders, e.Charges
	s.result.Events = worst(e.Events, s.result.Intents)
	s.result.Deliveries = worst(e.Deliveries, s.result.Intents)
	if e.Payments != s.result.Intents {
		s.wrong("%d payments, want %d", e.Payments, s.result.Intents)
	}
}

// say tells the audience one step.
func (s *scene) say(format string, args ...any) { s.story.step(fmt.Sprintf(format, args...)) }

// wrong records that something is not as the protocol promises.
func (s *scene) wrong(format string, args ...any) {
	s.result.Notes = append(s.result.Notes, fmt.Sprintf(format, args...))
}

// fault installs a plan and returns how many faults of the kind fire from now.
func (s *scene) fault(kind proxy.Kind, plan proxy.Plan) (fired func() int) {
	before := s.proxy.Fired()[kind]
	s.proxy.SetPlan(plan)
	return func() int { return s.proxy.Fired()[kind] - before }
}

// purchase is one order and its payment, each an intent with a key of its own.
type purchase struct {
	order, payment       reprise.Key
	orderID, paymentID   string
	orderBody, payerBody map[string]any
}

func newPurchase(ref string) *purchase {
	return &purchase{
		order: reprise.NewKey(), payment: reprise.NewKey(),
		orderBody: map[string]any{"ref": ref, "sku": "tea-1", "quantity": 2, "amount": 1200, "currency": "EUR"},
		payerBody: map[string]any{"ref": ref, "source": "card-4242"},
	}
}

// buy orders and pays at base, and keeps the ids. Every answer but success is
// an error of the scene.
func (s *scene) buy(ctx context.Context, base string, p *purchase) error {
	ordered, err := s.want(ctx, base+"/orders", p.order, p.orderBody)
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	p.orderID = ordered.ID
	paid, err := s.want(ctx, base+"/orders/"+p.orderID+"/payments", p.payment, p.payerBody)
	if err != nil {
		return fmt.Errorf("payment: %w", err)
	}
	p.paymentID = paid.ID
	return nil
}

// want posts and expects the resource to be created, by this attempt or an
// earlier one.
func (s *scene) want(ctx context.Context, url string, key reprise.Key, body any) (answer, error) {
	a := s.post(ctx, url, key, body)
	s.result.Attempts += len(a.attempts)
	s.tell(a)
	if a.err != nil {
		return a, a.err
	}
	if a.status != 201 {
		return a, fmt.Errorf("%s: status %d, code %q", url, a.status, a.Code)
	}
	return a, nil
}

// again repeats both intents under their keys: the ids must be the same.
func (s *scene) again(ctx context.Context, base string, p *purchase) error {
	repeat := *p
	attempts := s.result.Attempts
	if err := s.buy(ctx, base, &repeat); err != nil {
		return fmt.Errorf("repeat: %w", err)
	}
	s.result.Attempts = attempts // the report counts those of the intent, not of this check
	s.same(p.orderID, repeat.orderID)
	s.same(p.paymentID, repeat.paymentID)
	return nil
}

// same notes when a repeat names another resource.
func (s *scene) same(first, repeat string) {
	if first == "" || first != repeat {
		s.result.SameID = false
		s.wrong("a repeat named %q, the first answer %q", repeat, first)
	}
}

// tell shows the attempts of a call.
func (s *scene) tell(a answer) {
	for _, at := range a.attempts {
		switch {
		case at.Err != nil && at.Status == 0:
			s.say("attempt %d: no answer (%s): the outcome is %s", at.Number, cause(at.Err), at.Outcome)
		case at.Outcome == reprise.Unknown:
			s.say("attempt %d: %d: the outcome is unknown", at.Number, at.Status)
		case at.Status >= 300:
			s.say("attempt %d: %d %s", at.Number, at.Status, a.Code)
		default:
			s.say("attempt %d: %d %s", at.Number, at.Status, a.ID)
		}
	}
}
