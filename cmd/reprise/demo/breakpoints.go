// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/torture/proxy"
)

// breakpoints are those of R15, in its order.
var breakpoints = []scenario{
	{"R15.1", "the server commits, then the connection dies", commitThenReset},
	{"R15.2", "two requests with one key at the same time", twoAtOnce},
	{"R15.3", "one key, another body", anotherBody},
	{"R15.4", "the process is killed after the claim", killedAfterClaim},
	{"R15.5", "a key that has just expired is sent again", expiredKey},
	{"R15.6", "Retry-After is longer than the time left", retryAfterTooLong},
	{"R15.7", "a thousand clients get 503 at the same time", herd},
}

// first applies a fault to the first request under each key.
func first(f proxy.Fault) proxy.Plan {
	return func(r proxy.Request) proxy.Fault {
		if r.Key == "" || r.Seen > 0 {
			return proxy.Fault{}
		}
		return f
	}
}

func commitThenReset(ctx context.Context, s *scene) error {
	fired := s.fault(proxy.CommitThenReset, first(proxy.Fault{Kind: proxy.CommitThenReset}))
	s.say("the proxy lets each request through, reads the shop's whole answer, and resets the connection")
	p := newPurchase(s.ref)
	if err := s.buy(ctx, s.url(""), p); err != nil {
		return err
	}
	s.result.FaultsFired = fired()
	return s.again(ctx, s.url(""), p)
}

func twoAtOnce(ctx context.Context, s *scene) error {
	const clients = 2
	s.say("the proxy holds both requests until both are there, and lets them go together")
	gate := newGate(clients)
	s.proxy.SetPlan(func(r proxy.Request) proxy.Fault {
		gate.wait(ctx, r.Key)
		return proxy.Fault{}
	})
	p := newPurchase(s.ref)
	var ids [clients]purchase
	var errs [clients]error
	together := func(do func(i int) error) error {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { errs[i] = do(i) })
		}
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				return fmt.Errorf("client %d: %w", i+1, err)
			}
		}
		return nil
	}
	var mu sync.Mutex // a scene tells one story at a time
	post := func(url string, key reprise.Key, body any) (string, error) {
		a := s.post(ctx, url, key, body)
		mu.Lock()
		defer mu.Unlock()
		s.result.Attempts += len(a.attempts)
		s.tell(a)
		if a.err == nil && a.status != http.StatusCreated {
			a.err = fmt.Errorf("status %d, code %q", a.status, a.Code)
		}
		return a.ID, a.err
	}
	err := together(func(i int) (err error) {
		ids[i].orderID, err = post(s.url("/orders"), p.order, p.orderBody)
		return err
	})
	if err != nil {
		return err
	}
	err = together(func(i int) (err error) {
		ids[i].paymentID, err = post(s.url("/orders/"+ids[0].orderID+"/payments"), p.payment, p.payerBody)
		return err
	})
	if err != nil {
		return err
	}
	s.same(ids[0].orderID, ids[1].orderID)
	s.same(ids[0].paymentID, ids[1].paymentID)
	s.result.FaultsFired = gate.opened()
	return nil
}

func anotherBody(ctx context.Context, s *scene) error {
	p := newPurchase(s.ref)
	if err := s.buy(ctx, s.url(""), p); err != nil {
		return err
	}
	dearer := newPurchase(s.ref)
	dearer.orderBody["amount"] = 999900
	dearer.payerBody["source"] = "card-1111"
	s.say("the same keys come again, with another amount and another card")
	for url, conflict := range map[string]struct {
		key  reprise.Key
		body any
	}{
		s.url("/orders"): {p.order, dearer.orderBody},
		s.url("/orders/" + p.orderID + "/payments"): {p.payment, dearer.payerBody},
	} {
		a := s.post(ctx, url, conflict.key, conflict.body)
		s.result.Attempts += len(a.attempts)
		s.tell(a)
		switch {
		case a.err != nil:
			return a.err
		case a.status == http.StatusUnprocessableEntity && a.Code == string(reprise.CodeKeyReused):
			s.result.FaultsFired++
		default:
			s.wrong("a conflicting request got %d %q, want 422 key-reused", a.status, a.Code)
		}
		if a.ID != "" {
			s.wrong("a conflicting request was shown the old result %q", a.ID)
		}
	}
	return s.again(ctx, s.url(""), p)
}

func killedAfterClaim(ctx context.Context, s *scene) error {
	p := newPurchase(s.ref)
	ordered, err := s.want(ctx, s.url("/orders"), p.order, p.orderBody)
	if err != nil {
		return err
	}
	p.orderID = ordered.ID
	// The provider charges and never answers, so the claim is committed and the
	// call is out when the shop dies.
	if err := s.pspFault(ctx, "hang"); err != nil {
		return err
	}
	result := make(chan answer, 1)
	go func() { result <- s.post(ctx, s.url("/orders/"+p.orderID+"/payments"), p.payment, p.payerBody) }()
	if err := s.until(ctx, func() (bool, error) {
		e, err := s.effectsNow(ctx, s.ref)
		return e.Charges == 1, err
	}); err != nil {
		return fmt.Errorf("the provider never charged: %w", err)
	}
	if claimed, err := s.inProgress(ctx, "pay-order"); err != nil || !claimed {
		return fmt.Errorf("the payment is not in progress (%w)", err)
	}
	s.say("the provider has charged and says nothing; the shop is killed with SIGKILL, and started again")
	if err := s.shop.kill(); err != nil {
		return err
	}
	s.result.FaultsFired++
	if err := s.startShop(ctx); err != nil {
		return err
	}
	got := <-result
	s.result.Attempts += len(got.attempts)
	s.tell(got)
	if got.err != nil {
		return got.err
	}
	p.paymentID = got.ID
	if got.status != http.StatusCreated {
		s.wrong("the payment ended with %d %q", got.status, got.Code)
	}
	return s.again(ctx, s.url(""), p)
}

func expiredKey(ctx context.Context, s *scene) error {
	const retention, tombstone = 1 * time.Second, 2 * time.Second
	s.say("a second shop on the same database keeps results for %s and keys for %s", retention, tombstone)
	forgetful, err := s.newShop(ctx, "forgetful.log",
		"--retention", retention.String(), "--tombstone", tombstone.String(), "--lease", lease.String())
	if err != nil {
		return err
	}
	defer forgetful.stop() //nolint:errcheck // its data is judged by the counts
	base := "http://" + forgetful.addr["api"]
	p := newPurchase(s.ref)
	if err := s.buy(ctx, base, p); err != nil {
		return err
	}
	for _, age := range []struct {
		wait     time.Duration
		what     string
		withName bool
	}{
		{retention, "the result has just expired", true},
		{tombstone - retention, "the key is forgotten altogether, and its time says how old it is", false},
	} {
		if err := pause(ctx, age.wait+100*time.Millisecond); err != nil {
			return err
		}
		s.say("%s; both requests come again", age.what)
		for _, late := range []struct {
			url, id string
			key     reprise.Key
			body    any
		}{
			{base + "/orders", "/orders/" + p.orderID, p.order, p.orderBody},
			{base + "/orders/" + p.orderID + "/payments", "/payments/" + p.paymentID, p.payment, p.payerBody},
		} {
			a := s.post(ctx, late.url, late.key, late.body)
			s.result.Attempts += len(a.attempts)
			s.tell(a)
			switch {
			case a.err != nil:
				return a.err
			case a.status == http.StatusGone && a.Code == string(reprise.CodeKeyExpired):
				s.result.FaultsFired++
			default:
				s.wrong("an expired key got %d %q, want 410 key-expired", a.status, a.Code)
			}
			if age.withName {
				s.same(late.id, a.Reference)
			}
		}
	}
	return nil
}

func retryAfterTooLong(ctx context.Context, s *scene) error {
	fired := s.fault(proxy.SwapStatus, first(proxy.Fault{
		Kind: proxy.SwapStatus, Status: http.StatusServiceUnavailable, RetryAfter: time.Hour,
	}))
	s.say("the shop commits, and a gateway answers 503 with Retry-After: 3600 in its place; the client has %s", patience)
	p := newPurchase(s.ref)
	giveUp := func(url string, key reprise.Key, body any) error {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		began := time.Now()
		a := s.post(limited, url, key, body)
		s.result.Attempts += len(a.attempts)
		s.tell(a)
		if n := len(a.attempts); n != 1 {
			s.wrong("the client made %d attempts, want 1", n)
		} else if a.attempts[0].Outcome != reprise.Unknown {
			s.wrong("the client called the outcome %s, want unknown", a.attempts[0].Outcome)
		}
		if waited := time.Since(began); waited > patience/2 {
			s.wrong("the client waited %s for a retry that could not fit", waited)
		}
		return a.err
	}
	if err := giveUp(s.url("/orders"), p.order, p.orderBody); err != nil {
		return err
	}
	s.say("it stops at once and says that the outcome is unknown; its caller comes back later with the same key")
	ordered, err := s.want(ctx, s.url("/orders"), p.order, p.orderBody)
	if err != nil {
		return err
	}
	p.orderID = ordered.ID
	pay := s.url("/orders/" + p.orderID + "/payments")
	if err := giveUp(pay, p.payment, p.payerBody); err != nil {
		return err
	}
	paid, err := s.want(ctx, pay, p.payment, p.payerBody)
	if err != nil {
		return err
	}
	p.paymentID = paid.ID
	s.result.FaultsFired = fired()
	return s.again(ctx, s.url(""), p)
}

func herd(ctx context.Context, s *scene) error {
	clients := s.clients
	s.result.Intents = clients
	s.say("the proxy holds the first request of all %d clients, and answers all of them 503 at once", clients)
	var first sync.WaitGroup
	first.Add(clients)
	var swept atomic.Int64
	fired := s.fault(proxy.Answer, func(r proxy.Request) proxy.Fault {
		if r.Key == "" || r.Seen > 0 || r.Path != "/orders" {
			return proxy.Fault{}
		}
		first.Done()
		first.Wait()
		swept.Add(1)
		return proxy.Fault{Kind: proxy.Answer, Status: http.StatusServiceUnavailable}
	})
	purchases := make([]*purchase, clients)
	var attempts atomic.Int64
	errs := make(chan error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		purchases[i] = newPurchase(fmt.Sprintf("%s-%d", s.ref, i))
		wg.Go(func() {
			n, err := s.buyQuietly(ctx, purchases[i])
			attempts.Add(int64(n))
			if err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		return fmt.Errorf("%d clients failed, the first with: %w", len(errs)+1, err)
	}
	s.result.Attempts = int(attempts.Load())
	s.result.FaultsFired = fired()
	s.say("%d requests in all for %d orders and %d payments; nobody was told to come back at the same moment",
		s.result.Attempts, clients, clients)
	return s.countHerd(ctx, purchases)
}
