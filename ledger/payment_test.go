// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

// provider is another system: it recognises keys, and counts effects by key.
type provider struct {
	mu sync.Mutex
	// charges are effects, by key; sends counts requests, declines included.
	charges map[reprise.Key]string
	sends   int
	// requests are the distinct bytes that were sent under each key.
	requests map[reprise.Key]map[string]bool
	// decline makes it decide against every charge.
	decline bool
	// on is called around each charge, and may replace what the caller is told.
	before, after func() error
}

func newProvider() *provider {
	return &provider{charges: map[reprise.Key]string{}, requests: map[reprise.Key]map[string]bool{}}
}

func (p *provider) charge(_ context.Context, key reprise.Key, request []byte) ([]byte, error) {
	if p.before != nil {
		if err := p.before(); err != nil {
			return nil, err
		}
	}
	p.receive(key, request)
	if p.after != nil {
		if err := p.after(); err != nil {
			return nil, err
		}
	}
	if p.decline {
		return []byte("insufficient funds"), fmt.Errorf("provider: %w", &reprise.Error{
			Code: "declined", Detail: "the card was declined", Reference: "/charges/1", Outcome: reprise.Rejected,
		})
	}
	return []byte("charge of " + string(key)), nil
}

func (p *provider) receive(key reprise.Key, request []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sends++
	if p.requests[key] == nil {
		p.requests[key] = map[string]bool{}
	}
	p.requests[key][string(request)] = true
	if !p.decline {
		p.charges[key] = string(request)
	}
}

// check reports what the provider must never see: more than one effect, another
// key, or other bytes under one key.
func (p *provider) check(t tester, in reprise.Intent, charges int) {
	t.Helper()
	if len(p.charges) != charges {
		t.Errorf("%d charges, want %d: %v", len(p.charges), charges, p.charges)
	}
	for key, requests := range p.requests {
		if key != in.Derive("charge") {
			t.Errorf("K6: a charge went out under the key %q, want %q", key, in.Derive("charge"))
		}
		if len(requests) != 1 {
			t.Errorf("S4: one key carried %d different requests: %v", len(requests), requests)
		}
	}
}

// pay is a staged handler with every kind of step: a phase, a call and the end.
func pay(p *provider, seen func(error)) ledger.Handler[*memoryTx] {
	return func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
		err := run.Tx(ctx, "reserve", func(_ context.Context, tx *memoryTx) error {
			tx.insert("reserved")
			return nil
		})
		if err != nil {
			return err
		}
		// The request would differ between drives, were it not frozen.
		request := fmt.Appendf(nil, "%s in drive %d", run.Input(), run.Drive())
		response, err := run.Call(ctx, "charge", request, p.charge)
		if seen != nil {
			seen(err)
		}
		switch {
		case reprise.OutcomeOf(err) == reprise.Rejected:
			_, err = run.Finish(ctx, func(_ context.Context, tx *memoryTx) (reprise.Result, error) {
				tx.insert("declined")
				return reprise.Result{Status: 402, Body: response}, nil
			})
			return err
		case err != nil:
			return err
		}
		_, err = run.Finish(ctx, func(_ context.Context, tx *memoryTx) (reprise.Result, error) {
			tx.insert("paid")
			return reprise.Result{Status: 201, Body: response, Reference: "/payments/1"}, nil
		})
		return err
	}
}

// tester is what a test and a property have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// start declares the operation "pay" in a process.
func start(t tester, p *process, h ledger.Handler[*memoryTx], c *ledger.Config) (*ledger.Ledger[*memoryTx], *ledger.Staged[*memoryTx]) {
	t.Helper()
	l, err := ledger.New[*memoryTx](p, c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ledger.NewStaged(l, "pay", h)
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

func payment(key reprise.Key, fingerprint byte) reprise.Intent {
	in := intentOf(key, fingerprint)
	in.Operation = "pay"
	return in
}

// persist is a client that does what it is told: the same key again, after the
// advised pause, as long as the answer is not final.
func persist(t *testing.T, s *ledger.Staged[*memoryTx], in reprise.Intent, input string) (ledger.Answer, time.Duration) {
	t.Helper()
	start := time.Now()
	for time.Since(start) < 5*time.Minute {
		a, err := s.Do(t.Context(), in, ledger.Options{}, []byte(input))
		if err == nil {
			return a, time.Since(start)
		}
		e, ok := errors.AsType[*reprise.Error](err)
		if !ok || e.RetryAfter == 0 || e.Outcome != reprise.Unknown {
			t.Fatalf("the client was told %v, which is not the truth about a run in progress", err)
		}
		time.Sleep(e.RetryAfter)
	}
	t.Fatal("the intent is stuck")
	return ledger.Answer{}, 0
}
