// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func TestFlightsJoin(t *testing.T) {
	t.Parallel()
	intent := func(fingerprint byte) reprise.Intent {
		return reprise.Intent{
			Caller: "alice", Operation: "create-order", Key: "k",
			Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, fingerprint},
		}
	}
	const wait = 2 * time.Second
	// In each subtest the flights must be empty at the end: an intent that nobody
	// is interested in costs no memory.
	setup := func(t *testing.T, test func(t *testing.T, g *flights, lead *seat)) {
		synctest.Test(t, func(t *testing.T) {
			g := &flights{}
			s, _, err := g.join(t.Context(), intent(1), time.Now().Add(wait))
			if err != nil || s == nil {
				t.Fatalf("the first caller got (%v, %v), want the lead", s, err)
			}
			test(t, g, s)
			synctest.Wait()
			if len(g.m) != 0 {
				t.Errorf("%d flights are left behind", len(g.m))
			}
		})
	}
	type got struct {
		seat  *seat
		entry store.Entry
		err   error
	}
	join := func(ctx context.Context, g *flights, in reprise.Intent) <-chan got {
		c := make(chan got, 1)
		go func() {
			s, e, err := g.join(ctx, in, time.Now().Add(wait))
			c <- got{s, e, err}
		}()
		synctest.Wait()
		return c
	}

	t.Run("L2: those who wait share what the leader established, each with its own copy", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			a, b := join(t.Context(), g, intent(1)), join(t.Context(), g, intent(1))
			made := reprise.Result{Status: 201, Body: []byte("one"), Header: map[string][]string{"Location": {"/1"}}}
			lead.settle(store.Entry{State: reprise.StateCompleted, Result: made})
			made.Body[0], made.Header["Location"][0] = 'X', "X"
			first := <-a
			first.entry.Result.Body[0] = 'Y'
			second := <-b
			if s := string(second.entry.Result.Body); second.err != nil || s != "one" || second.entry.Result.Header["Location"][0] != "/1" {
				t.Errorf("the second caller got %q, %v", s, second.err)
			}
		})
	})

	t.Run("L12: when the leader fails, exactly one of those who wait goes on", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			var mu sync.Mutex
			leads, most, now := 0, 0, 0
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					s, _, err := g.join(t.Context(), intent(1), time.Now().Add(time.Minute))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					leads, now = leads+1, now+1
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					now--
					mu.Unlock()
					s.leave()
				})
			}
			synctest.Wait()
			lead.leave()
			wg.Wait()
			if leads != 20 || most != 1 {
				t.Errorf("%d led, %d at once; want 20, one at a time", leads, most)
			}
		})
	})

	t.Run("L6: another fingerprint is turned away as soon as the leader holds the claim", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			early := join(t.Context(), g, intent(2))
			select {
			case r := <-early:
				t.Fatalf("turned away with %v while the leader was only looking: the record it finds may be this one's", r.err)
			default:
			}
			lead.bind()
			start := time.Now()
			late := join(t.Context(), g, intent(2))
			for _, c := range []<-chan got{early, late} {
				if r := <-c; !errors.Is(r.err, reprise.ErrKeyReused) {
					t.Errorf("got %v, want key-reused", r.err)
				}
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("it took %v; want at once", d)
			}
			lead.leave()
		})
	})

	t.Run("L6: a leader that only looked leaves the key to the other fingerprint", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			other := join(t.Context(), g, intent(2))
			lead.leave()
			r := <-other
			if r.err != nil || r.seat == nil {
				t.Fatalf("got %v, want the lead", r.err)
			}
			r.seat.bind()
			same := join(t.Context(), g, intent(1))
			if r := <-same; !errors.Is(r.err, reprise.ErrKeyReused) {
				t.Errorf("the first fingerprint got %v under the new leader, want key-reused", r.err)
			}
			r.seat.leave()
		})
	})

	t.Run("L11: waiting ends after exactly the wait", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			start := time.Now()
			r := <-join(t.Context(), g, intent(1))
			if e, ok := errors.AsType[*reprise.Error](r.err); !ok || e.Code != reprise.CodeInProgress || e.RetryAfter < time.Second {
				t.Errorf("got %v, want in-progress with advice to wait a second or more", r.err)
			}
			if d := time.Since(start); d != wait {
				t.Errorf("waited %v, want %v", d, wait)
			}
			lead.leave()
		})
	})

	t.Run("a wait that ends as the leader leaves costs no memory", func(t *testing.T) {
		t.Parallel()
		for range 50 { // Which of the two comes first is not ours to say.
			setup(t, func(t *testing.T, g *flights, lead *seat) {
				c := join(t.Context(), g, intent(1))
				time.Sleep(wait)
				lead.leave()
				if r := <-c; r.seat != nil {
					r.seat.leave()
				}
			})
		}
	})

	t.Run("a caller that leaves stops waiting", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			ctx, cancel := context.WithCancelCause(t.Context())
			c := join(ctx, g, intent(1))
			left := fmt.Errorf("gone home")
			cancel(left)
			if r := <-c; !errors.Is(r.err, left) {
				t.Errorf("got %v, want the cause of its context", r.err)
			}
			lead.leave()
		})
	})

	t.Run("a shared failure ends all waiting, and the next caller leads", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			c := join(t.Context(), g, intent(1))
			lead.fail(outcomeUnknown("test", nil))
			if r := <-c; !errors.Is(r.err, reprise.ErrOutcomeUnknown) {
				t.Errorf("got %v, want outcome-unknown", r.err)
			}
			r := <-join(t.Context(), g, intent(1))
			if r.seat == nil {
				t.Fatalf("got %v, want the lead", r.err)
			}
			lead.leave() // Does nothing: its flight is over.
			r.seat.leave()
		})
	})

	t.Run("K3: another caller, operation or key is another flight", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, g *flights, lead *seat) {
			for _, change := range []func(*reprise.Intent){
				func(i *reprise.Intent) { i.Caller = "bob" },
				func(i *reprise.Intent) { i.Operation = "pay" },
				func(i *reprise.Intent) { i.Key = "K" },
			} {
				in := intent(2)
				change(&in)
				r := <-join(t.Context(), g, in)
				if r.seat == nil {
					t.Fatalf("%+v got %v, want its own lead", in, r.err)
				}
				r.seat.leave()
			}
			lead.leave()
		})
	})
}
