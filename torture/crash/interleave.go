// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

// Interleaving is what every schedule of two attempts at one intent came to.
type Interleaving struct {
	// Schedules were run, and each was another one. In Overlapped of them each
	// attempt took a step before the other was over, and in Waited one of them
	// waited for a lock of the other.
	Schedules, Overlapped, Waited int
	// Answers counts what the two attempts were told.
	Answers map[string]int
	// Violations say what was wrong, and in which schedule.
	Violations []string
}

// String returns the result in one line, without the violations.
func (i Interleaving) String() string {
	return fmt.Sprintf("%d schedules, %d overlapped, %d waited for a lock, answers %v, %d violations",
		i.Schedules, i.Overlapped, i.Waited, i.Answers, len(i.Violations))
}

// maxSteps bounds one schedule: attempts that poll each other would go on for ever.
const maxSteps = 1000

// Interleave runs every schedule of two attempts at one intent, each on an
// instance of its own. A step lets one message through to the server; it is over
// when the attempt is about to send its next one, has its answer, or waits for a
// lock, as blocked tells of a session of the server.
//
// One order must be kept, at least one attempt must succeed, and those that
// succeed must be told the same. Every other answer must be NotProcessed.
func Interleave(ctx context.Context, w *Wire, blocked func(ctx context.Context, session uint32) (bool, error)) (Interleaving, error) {
	result := Interleaving{Answers: map[string]int{}}
	ctx, cancel := context.WithCancel(ctx)
	var actors [2]*actor
	for i := range actors {
		a, err := startActor(ctx, w, i)
		if err != nil {
			cancel()
			return result, err
		}
		defer a.close()
		actors[i] = a
	}
	defer cancel() // first, so that nobody is held who has to be waited for
	// A program that is new to its connections may send other messages than one that
	// is not, and the repeat of a schedule would differ from it.
	known := newOrder()
	for _, a := range actors {
		if answer := a.program.Attempt(ctx, known); answer.Outcome != reprise.Succeeded {
			return result, fmt.Errorf("crash: nothing is in the way of an attempt, and it fails: %s", answer.Detail)
		}
	}
	for prefix := []int{}; prefix != nil; {
		s := &schedule{actors: actors, blocked: blocked, prefix: prefix}
		o := newOrder()
		if err := s.run(ctx, o); err != nil {
			return result, err
		}
		if err := s.judge(ctx, w, o, &result); err != nil {
			return result, err
		}
		prefix = s.next()
	}
	return result, nil
}

// actor is one of the two who attempt.
type actor struct {
	name     string
	program  Program
	proxy    *sqlwire.Proxy
	arrivals chan arrival
	answers  chan Answer

	// at is where it waits to be let through, and session is the one in which its
	// last message went; done says that it has its answer.
	at      *arrival
	session uint32
	done    bool
	answer  Answer
}

// arrival is a message that waits to be let through.
type arrival struct {
	point sqlwire.Point
	pass  chan struct{}
}

func startActor(ctx context.Context, w *Wire, i int) (*actor, error) {
	a := &actor{name: string(rune('A' + i)), arrivals: make(chan arrival), answers: make(chan Answer)}
	var err error
	if a.proxy, err = sqlwire.Listen(ctx, w.Protocol, "127.0.0.1:0", w.Server, nil); err != nil {
		return nil, err
	}
	if a.program, err = w.Open(ctx, a.proxy.Addr()); err != nil {
		return nil, errors.Join(err, a.proxy.Close())
	}
	return a, nil
}

func (a *actor) close() {
	a.proxy.SetPlan(nil)
	_ = a.program.Close()
	_ = a.proxy.Close()
}

// begin starts an attempt whose messages arrive at the schedule.
func (a *actor) begin(ctx context.Context, o Order) {
	a.at, a.session, a.done = nil, 0, false
	a.proxy.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
		if at.When == crashpoint.After || prepares(at.Statement) {
			return sqlwire.Fault{}
		}
		here := arrival{at, make(chan struct{})}
		select {
		case a.arrivals <- here:
		case <-ctx.Done():
			return sqlwire.Fault{Kind: sqlwire.Reset}
		}
		select {
		case <-here.pass:
			return sqlwire.Fault{}
		case <-ctx.Done():
			return sqlwire.Fault{Kind: sqlwire.Reset}
		}
	})
	go func() {
		answer := a.program.Attempt(ctx, o)
		a.proxy.SetPlan(nil)
		select {
		case a.answers <- answer:
		case <-ctx.Done():
		}
	}()
}

// prepares says whether a message changes nothing and is sent only where a
// connection is new to a statement: as a step it would make a schedule unlike its
// repeat.
func prepares(statement string) bool {
	return statement == "CONNECT" || strings.HasPrefix(statement, "PREPARE ")
}

// pass lets the message through that waits.
func (a *actor) pass() {
	a.session = a.at.point.Session
	close(a.at.pass)
	a.at = nil
}

// running says that the actor has neither arrived nor finished.
func (a *actor) running() bool { return a.at == nil && !a.done }

// step is one choice of a schedule.
type step struct {
	enabled []int
	chosen  int
	text    string
}

// schedule is one order in which the messages of two attempts are let through.
type schedule struct {
	actors  [2]*actor
	blocked func(ctx context.Context, session uint32) (bool, error)
	// prefix has the first choices; the rest is the first choice there is.
	prefix []int
	steps  []step
	waited bool
}

// run runs both attempts to their end.
func (s *schedule) run(ctx context.Context, o Order) error {
	for _, a := range s.actors {
		a.begin(ctx, o)
	}
	for {
		if err := s.rest(ctx); err != nil {
			return err
		}
		var enabled []int
		for i, a := range s.actors {
			if a.at != nil {
				enabled = append(enabled, i)
			}
		}
		if len(enabled) == 0 {
			return nil
		}
		if len(s.steps) == maxSteps {
			return fmt.Errorf("crash: a schedule does not end: %s", s)
		}
		chosen := enabled[0]
		if n := len(s.steps); n < len(s.prefix) {
			chosen = s.prefix[n]
			if !slices.Contains(enabled, chosen) {
				return fmt.Errorf("crash: a schedule went another way when it was run again: %s", s)
			}
		}
		a := s.actors[chosen]
		s.steps = append(s.steps, step{enabled, chosen, a.name + " " + brief(a.at.point.Statement)})
		a.pass()
	}
}

// rest waits until each actor has arrived, has finished, or waits for a lock while
// the other one can still be let through.
func (s *schedule) rest(ctx context.Context) error {
	a, b := s.actors[0], s.actors[1]
	for a.running() || b.running() {
		poll := time.NewTimer(time.Millisecond)
		select {
		case at := <-a.arrivals:
			a.at = &at
		case at := <-b.arrivals:
			b.at = &at
		case a.answer = <-a.answers:
			a.done = true
		case b.answer = <-b.answers:
			b.done = true
		case <-poll.C:
			over, err := s.stands(ctx)
			if over || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		poll.Stop()
	}
	return nil
}

// stands says whether one actor waits for a lock and the other one for this
// schedule.
func (s *schedule) stands(ctx context.Context) (bool, error) {
	for i, a := range s.actors {
		if !a.running() || a.session == 0 || s.actors[1-i].at == nil {
			continue
		}
		waits, err := s.blocked(ctx, a.session)
		if err != nil {
			return false, err
		}
		if waits {
			s.waited = true
			return true, nil
		}
	}
	return false, nil
}

// next is the prefix of the schedule that comes after this one, or nil.
func (s *schedule) next() []int {
	for n, at := range slices.Backward(s.steps) {
		if i := slices.Index(at.enabled, at.chosen); i+1 < len(at.enabled) {
			prefix := make([]int, 0, n+1)
			for _, before := range s.steps[:n] {
				prefix = append(prefix, before.chosen)
			}
			return append(prefix, at.enabled[i+1])
		}
	}
	return nil
}

// overlapped says that each actor took a step before the other was over.
func (s *schedule) overlapped() bool {
	turns := 0
	for n := 1; n < len(s.steps); n++ {
		if s.steps[n].chosen != s.steps[n-1].chosen {
			turns++
		}
	}
	return turns > 1
}

// judge holds the answers to what the database says.
func (s *schedule) judge(ctx context.Context, w *Wire, o Order, result *Interleaving) error {
	result.Schedules++
	if s.overlapped() {
		result.Overlapped++
	}
	if s.waited {
		result.Waited++
	}
	r := &run{service: w, order: o}
	told := make([]string, 0, len(s.actors))
	// Whoever succeeded comes first: a refusal says nothing of the other attempt.
	ordered := s.actors[:]
	if ordered[0].answer.Outcome != reprise.Succeeded {
		ordered = []*actor{ordered[1], ordered[0]}
	}
	for _, a := range ordered {
		told = append(told, strings.TrimSpace(fmt.Sprint(a.answer.Outcome, " ", a.answer.Detail)))
		if a.answer.Outcome == reprise.Unknown {
			r.violate("%s was told nothing certain: %s", a.name, a.answer.Detail)
		}
		r.judge(ctx, a.answer)
	}
	slices.Sort(told)
	result.Answers[strings.Join(told, ", ")]++
	if !r.acked {
		r.violate("nobody succeeded")
	}
	r.effects(ctx, "in the end", w.Expect)
	for _, v := range r.violations {
		result.Violations = append(result.Violations, s.String()+": "+v)
	}
	return ctx.Err()
}

// String lists the steps.
func (s *schedule) String() string {
	text := make([]string, 0, len(s.steps))
	for _, at := range s.steps {
		text = append(text, at.text)
	}
	return strings.Join(text, "; ")
}

// brief is the beginning of a statement.
func brief(statement string) string {
	const limit = 40
	statement = strings.Join(strings.Fields(statement), " ")
	if len(statement) > limit {
		statement = statement[:limit] + "..."
	}
	return statement
}
