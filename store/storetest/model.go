// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

const (
	// modelBudget is how long histories are drawn. At least one always runs.
	modelBudget = 4 * time.Second

	// No sum of the model's ages is within a quarter of an hour of these.
	modelLease     = 45 * time.Minute
	modelRetention = 10*time.Hour + 15*time.Minute
	modelTombstone = 30*time.Hour + 15*time.Minute
)

func modelRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{{
		"L2_random_histories_follow_the_state_machine",
		"Whatever executes, fails, repeats, ages, is purged, begun, taken over, completed or restarted in whatever order: the ledger does what its state machine says.",
		randomHistories[TTx],
	}}
}

// randomHistories draws sequences of operations and compares every answer, and
// all records after every operation, with a model of a page of code. A failure
// is shrunk to a short history.
func randomHistories[TTx any](f *fixture[TTx]) {
	drivers := make([]store.Driver[TTx], 2)
	stops := make([]func(), 2)
	for i := range drivers {
		drivers[i], stops[i] = f.open()
	}
	end := time.Now().Add(modelBudget)
	histories, failed := 0, false
	rapid.Check(f.TB, func(t *rapid.T) {
		if time.Now().After(end) && histories > 0 && !failed {
			return
		}
		histories++
		defer func() { failed = failed || t.Failed() }()
		ctx, cancel := context.WithTimeout(f.Context(), f.patience)
		defer cancel()
		own := *f
		own.TB, own.ctx = modelTB{f.TB, t}, ctx
		m := &model[TTx]{
			fixture: &own, t: t, drivers: drivers, stops: stops,
			caller: reprise.Caller(fmt.Sprintf("caller-%d", histories)), records: map[reprise.Key]*modelRecord{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"execute":  m.execute,
			"resolve":  m.resolve,
			"age":      m.age,
			"purge":    m.purge,
			"begin":    m.begin,
			"takeover": m.takeover,
			"renew":    m.renew,
			"phase":    m.phase,
			"withdraw": m.withdraw,
			"reopen":   m.reopen,
		})
		m.checkMessages()
	})
	f.Logf("%d histories", histories)
}

// modelTB lets the helpers of a fixture fail one history instead of the test.
type modelTB struct {
	testing.TB

	t *rapid.T
}

func (m modelTB) Errorf(format string, args ...any) { m.t.Helper(); m.t.Errorf(format, args...) }
func (m modelTB) Fatalf(format string, args ...any) { m.t.Helper(); m.t.Fatalf(format, args...) }
func (m modelTB) Failed() bool                      { return m.t.Failed() }

// modelRecord is what the model knows of one intent that is not absent.
type modelRecord struct {
	intent         reprise.Intent
	token          store.Token
	inProgress     bool
	input          string
	epoch          int64
	drives         int
	lease          time.Duration
	result         reprise.Result
	expires, until time.Duration
	steps          []store.Step
}

// model is the state machine, on a clock that only age moves.
type model[TTx any] struct {
	*fixture[TTx]

	t       *rapid.T
	drivers []store.Driver[TTx]
	stops   []func()
	caller  reprise.Caller
	now     time.Duration
	records map[reprise.Key]*modelRecord
	// holdings are all that were ever given out; most of them are lost.
	holdings []store.Ownership
	effects  [2]int // expected and attempted business rows, over all keys.
}

// intent draws one of a few intents, so that they meet often.
func (m *model[TTx]) intent(t *rapid.T) reprise.Intent {
	return reprise.Intent{
		Caller: m.caller, Operation: "op",
		Key:         rapid.SampledFrom([]reprise.Key{"a", "A", "b"}).Draw(t, "key"),
		Fingerprint: fingerprint(rapid.SampledFrom([]byte{1, 1, 1, 2}).Draw(t, "content")),
	}
}

func (m *model[TTx]) driver(t *rapid.T) store.Driver[TTx] {
	return m.drivers[rapid.IntRange(0, 1).Draw(t, "process")]
}

// record returns what the model has for the key now; nil if it is absent.
func (m *model[TTx]) record(key reprise.Key) *modelRecord {
	r := m.records[key]
	if r != nil && !r.inProgress && m.now > r.until {
		delete(m.records, key)
		return nil
	}
	return r
}

// same fails unless e is the record r as it must be read now.
func (m *model[TTx]) same(t *rapid.T, what string, r *modelRecord, e store.Entry) {
	state, result := reprise.StateCompleted, r.result
	switch {
	case r.inProgress:
		state = reprise.StateInProgress
	case m.now > r.expires:
		state = reprise.StateTombstone
		result.Header, result.Body = nil, nil
	}
	if e.State != state || e.Intent != r.intent || e.ID != r.intent.ID() || e.Token != r.token {
		t.Fatalf("%s: %s of %+v with token %x; want %s of %+v with token %x", what, e.State, e.Intent, e.Token, state, r.intent, r.token)
	}
	if r.inProgress && (e.Epoch != r.epoch || e.Drives != r.drives || string(e.Input) != r.input) {
		t.Fatalf("%s: epoch %d, drive %d, input %q; want %d, %d, %q", what, e.Epoch, e.Drives, e.Input, r.epoch, r.drives, r.input)
	}
	m.wantResult(what, result, e.Result)
}

// check compares all records, and the runs to be recovered, with the model.
func (m *model[TTx]) check(t *rapid.T) {
	var lapsed []reprise.IntentID
	for _, key := range []reprise.Key{"a", "A", "b"} {
		in := reprise.Intent{Caller: m.caller, Operation: "op", Key: key, Fingerprint: fingerprint(1)}
		r := m.record(key)
		if r == nil {
			m.wantAbsent(m.drivers[0], in)
			continue
		}
		m.same(t, "find", r, m.mustFind(m.drivers[0], in))
		if !r.inProgress {
			continue
		}
		m.wantSteps(m.drivers[1], in.ID(), r.steps...)
		if m.now > r.lease {
			lapsed = append(lapsed, in.ID())
		}
	}
	page, err := m.drivers[0].Lapsed(m.ctx, reprise.IntentID{}, 1000)
	if err != nil {
		t.Fatalf("lapsed: %v", err)
	}
	var got []reprise.IntentID
	for _, e := range page {
		if e.Intent.Caller == m.caller {
			got = append(got, e.ID)
		}
	}
	slices.SortFunc(lapsed, func(a, b reprise.IntentID) int { return bytes.Compare(a[:], b[:]) })
	if !slices.Equal(got, lapsed) {
		t.Fatalf("lapsed: %v, want %v", got, lapsed)
	}
	m.wantEffects(string(m.caller), m.effects[0])
}

// write is the work of a handler: a business row and a message.
func (m *model[TTx]) write(ctx context.Context, d store.Driver[TTx], tx TTx) error {
	m.effects[1]++
	id := fmt.Sprintf("%s-%d", m.caller, m.effects[1])
	return errors.Join(m.effect(ctx, tx, string(m.caller)), d.Enqueue(ctx, tx, message(id, string(m.caller))))
}

// endings of a handler.
const (
	succeeds = "succeeds"
	fails    = "fails"
	panics   = "panics"
)

// end ends a handler as drawn.
func end(how string) error {
	switch how {
	case fails:
		return errHandler
	case panics:
		panic(errHandler)
	}
	return nil
}

func drawEnding(t *rapid.T) string {
	return rapid.SampledFrom([]string{succeeds, succeeds, succeeds, fails, panics}).Draw(t, "handler")
}

// wantEnding fails unless the driver handed on how the handler ended.
func wantEnding(t *rapid.T, how string, recovered any, err error) {
	raised, _ := recovered.(error)
	if how == panics && !errors.Is(raised, errHandler) || how == fails && !errors.Is(err, errHandler) ||
		how == succeeds && (err != nil || recovered != nil) {
		t.Fatalf("the handler %s; the caller got error %v, panic %v", how, err, recovered)
	}
}

func modelCompletion(c store.Claim) store.Completion {
	done := completion(c)
	done.Retention, done.Tombstone = modelRetention, modelTombstone
	return done
}

func (r *modelRecord) complete(now time.Duration, done store.Completion) {
	r.inProgress, r.result, r.expires, r.until = false, done.Result, now+modelRetention, now+modelTombstone
	if done.OmitBody {
		r.expires = now - 1
	}
}

func (m *model[TTx]) execute(t *rapid.T) {
	in, d, how := m.intent(t), m.driver(t), drawEnding(t)
	c := claim(in)
	done := modelCompletion(c)
	done.OmitBody = rapid.IntRange(0, 4).Draw(t, "omit body") == 0
	r := m.record(in.Key)
	var e store.Entry
	var executed bool
	recovered, err := call(func() (err error) {
		e, executed, err = d.Execute(m.ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
			if r != nil {
				if err := m.effect(ctx, tx, string(m.caller)); err == nil {
					t.Errorf("work had an effect although there is a record")
				}
				return done, end(how)
			}
			return done, errors.Join(m.write(ctx, d, tx), end(how))
		})
		return err
	})
	if r != nil {
		if err != nil || executed || recovered != nil {
			t.Fatalf("a repeat: executed %t, error %v, panic %v", executed, err, recovered)
		}
		m.same(t, "a repeat", r, e)
		return
	}
	wantEnding(t, how, recovered, err)
	if executed != (how == succeeds) {
		t.Fatalf("the handler %s, executed is %t", how, executed)
	}
	if executed {
		r = &modelRecord{intent: in, token: c.Token}
		r.complete(m.now, done)
		m.records[in.Key] = r
		m.effects[0]++
	}
}

func (m *model[TTx]) resolve(t *rapid.T) {
	in := m.intent(t)
	e, err := m.driver(t).Resolve(m.ctx, in)
	if r := m.record(in.Key); r != nil && err == nil {
		m.same(t, "resolve", r, e)
	} else if r != nil || !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("resolve: error %v, recorded is %t", err, r != nil)
	}
}

func (m *model[TTx]) age(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{30 * time.Minute, time.Hour, 5 * time.Hour, 11 * time.Hour, 31 * time.Hour}).Draw(t, "by")
	m.fixture.age(by)
	m.now += by
}

func (m *model[TTx]) purge(t *rapid.T) {
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	if n, err := m.driver(t).Purge(m.ctx, limit); err != nil || n > limit {
		t.Fatalf("a purge of at most %d changed %d records, error %v", limit, n, err)
	}
}

func (m *model[TTx]) begin(t *rapid.T) {
	in, d := m.intent(t), m.driver(t)
	c := claim(in)
	input := fmt.Sprintf("input-%x", c.Token)
	r := m.record(in.Key)
	e, owned, err := d.Begin(m.ctx, c, []byte(input), modelLease)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	lapsed := r != nil && r.inProgress && m.now > r.lease && r.intent == in
	if want := r == nil || lapsed; owned != want {
		t.Fatalf("begin: owned %t, want %t", owned, want)
	}
	switch {
	case r == nil:
		m.records[in.Key] = &modelRecord{
			intent: in, token: c.Token, inProgress: true, input: input,
			epoch: e.Epoch, drives: 1, lease: m.now + modelLease,
		}
		m.given(t, e)
	case lapsed:
		m.driven(t, r, e)
	}
	m.same(t, "begin", m.records[in.Key], e)
}

// given remembers a holding, which must be like none before it (rule S2).
func (m *model[TTx]) given(t *rapid.T, e store.Entry) {
	if slices.Contains(m.holdings, own(e)) {
		t.Fatalf("epoch %d of %q was given out before", e.Epoch, e.Intent.Key)
	}
	m.holdings = append(m.holdings, own(e))
}

// driven moves the model to the next drive of a run.
func (m *model[TTx]) driven(t *rapid.T, r *modelRecord, e store.Entry) {
	r.epoch++
	r.drives++
	r.lease = m.now + modelLease
	if e.Token == r.token {
		t.Fatalf("a run that was taken over kept the token of its former owner")
	}
	r.token = e.Token
	m.given(t, e)
}

func (m *model[TTx]) takeover(t *rapid.T) {
	in := m.intent(t)
	e, err := m.driver(t).Takeover(m.ctx, in.ID(), modelLease)
	r := m.record(in.Key)
	if r == nil || !r.inProgress || m.now <= r.lease {
		if !errors.Is(err, store.ErrLeaseLost) {
			t.Fatalf("takeover of what has not lapsed: %v, want ErrLeaseLost", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("takeover: %v", err)
	}
	m.driven(t, r, e)
	m.same(t, "takeover", r, e)
}

// holding draws one of all holdings, and the run that it still holds, if it does.
func (m *model[TTx]) holding(t *rapid.T) (store.Ownership, *modelRecord) {
	if len(m.holdings) == 0 {
		t.Skip("nothing was begun")
	}
	// Mostly one of the last, which is more often in force.
	back := min(rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5}).Draw(t, "holding"), len(m.holdings))
	o := m.holdings[len(m.holdings)-back]
	for _, key := range []reprise.Key{"a", "A", "b"} {
		if r := m.record(key); r != nil && r.inProgress && r.intent.ID() == o.ID && r.epoch == o.Epoch {
			return o, r
		}
	}
	return o, nil
}

func wantLeaseLost(t *rapid.T, what string, err error) {
	if !errors.Is(err, store.ErrLeaseLost) {
		t.Fatalf("%s under an epoch that is over: %v, want ErrLeaseLost", what, err)
	}
}

func (m *model[TTx]) renew(t *rapid.T) {
	o, r := m.holding(t)
	lease := rapid.SampledFrom([]time.Duration{0, modelLease}).Draw(t, "lease")
	err := m.driver(t).Renew(m.ctx, o, lease)
	if r == nil {
		wantLeaseLost(t, "renew", err)
		return
	}
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	if r.lease = m.now + lease; lease == 0 {
		r.lease = m.now - 1
	}
}

func (m *model[TTx]) phase(t *rapid.T) {
	o, r := m.holding(t)
	d, how := m.driver(t), drawEnding(t)
	s := plannedStep(rapid.SampledFrom([]string{"reserve", "charge", "ship"}).Draw(t, "step"))
	if rapid.Bool().Draw(t, "done") {
		s.State, s.Outcome, s.Response = store.StepDone, reprise.Succeeded, []byte("ok")
	}
	writes := store.PhaseWrites{Step: s}
	if rapid.IntRange(0, 3).Draw(t, "complete") == 0 {
		done := modelCompletion(store.Claim{Token: store.NewToken()})
		writes.Complete = &done
	}
	recovered, err := call(func() error {
		return d.Phase(m.ctx, o, modelLease, func(ctx context.Context, tx TTx) (store.PhaseWrites, error) {
			if r == nil {
				t.Errorf("work was called under an epoch that is over")
			}
			return writes, errors.Join(m.write(ctx, d, tx), end(how))
		})
	})
	if r == nil {
		wantLeaseLost(t, "phase", err)
		return
	}
	i := slices.IndexFunc(r.steps, func(old store.Step) bool { return old.Name == s.Name })
	if how == succeeds && i >= 0 && r.steps[i].State == store.StepDone {
		if err == nil {
			t.Fatalf("the step %q, which is done, was written again", s.Name)
		}
		return
	}
	wantEnding(t, how, recovered, err)
	if how != succeeds {
		return
	}
	m.effects[0]++
	r.lease = m.now + modelLease
	if i >= 0 {
		r.steps[i] = *s
	} else {
		r.steps = append(r.steps, *s)
	}
	if writes.Complete != nil {
		r.complete(m.now, *writes.Complete)
	}
}

func (m *model[TTx]) withdraw(t *rapid.T) {
	o, r := m.holding(t)
	err := m.driver(t).Withdraw(m.ctx, o)
	switch {
	case r == nil:
		wantLeaseLost(t, "withdraw", err)
	case len(r.steps) > 0 && err == nil:
		t.Fatalf("a run with %d steps was withdrawn", len(r.steps))
	case len(r.steps) == 0 && err != nil:
		t.Fatalf("withdraw: %v", err)
	case len(r.steps) == 0:
		delete(m.records, r.intent.Key)
	}
}

func (m *model[TTx]) reopen(t *rapid.T) {
	n := rapid.IntRange(0, 1).Draw(t, "process")
	m.stops[n]()
	m.drivers[n], m.stops[n] = m.open()
}

// checkMessages fails unless the outbox holds one message for each business row.
func (m *model[TTx]) checkMessages() {
	m.fixture.age(lease + time.Minute) // Relays of earlier histories are gone.
	m.now += lease + time.Minute
	r := m.relay(m.drivers[0], "relay")
	got := r.drain(m.effects[0], 100)
	if len(got) != m.effects[0] {
		m.Errorf("%d messages beside %d business rows", len(got), m.effects[0])
	}
}
