// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/reprise-go/reprise"
)

// buyQuietly orders and pays without telling, for one of many, and returns how
// many attempts that took.
func (s *scene) buyQuietly(ctx context.Context, p *purchase) (attempts int, err error) {
	post := func(path string, key reprise.Key, body any) (string, error) {
		a := s.post(ctx, s.url(path), key, body)
		attempts += len(a.attempts)
		if a.err == nil && a.status != http.StatusCreated {
			a.err = fmt.Errorf("%s: status %d, code %q", path, a.status, a.Code)
		}
		return a.ID, a.err
	}
	if p.orderID, err = post("/orders", p.order, p.orderBody); err != nil {
		return attempts, err
	}
	p.paymentID, err = post("/orders/"+p.orderID+"/payments", p.payment, p.payerBody)
	return attempts, err
}

// countHerd counts the effects of every client by itself: two orders of one and
// none of another must not add up to the right number.
func (s *scene) countHerd(ctx context.Context, purchases []*purchase) error {
	const counters = 16
	total := newEffects()
	var mu sync.Mutex
	var failed error
	todo := make(chan *purchase)
	var wg sync.WaitGroup
	for range counters {
		wg.Go(func() {
			for p := range todo {
				ref, _ := p.orderBody["ref"].(string)
				e, err := s.effects(ctx, ref)
				mu.Lock()
				if err != nil {
					failed = err
				} else if total.add(e); !e.one() {
					s.wrong("%s has %+v, want one of each", ref, *e)
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range purchases {
		todo <- p
	}
	close(todo)
	wg.Wait()
	s.take(total)
	return failed
}

// gate lets the requests under one key pass when n of them have arrived.
type gate struct {
	n     int
	mu    sync.Mutex
	count map[string]int
	open  map[string]chan struct{}
}

func newGate(n int) *gate {
	return &gate{n: n, count: map[string]int{}, open: map[string]chan struct{}{}}
}

// wait blocks until n requests with the key have come. Later ones pass.
func (g *gate) wait(ctx context.Context, key string) {
	g.mu.Lock()
	open := g.open[key]
	if open == nil {
		open = make(chan struct{})
		g.open[key] = open
	}
	g.count[key]++
	if g.count[key] == g.n {
		close(open)
	}
	g.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
}

// opened counts the keys of which n requests met.
func (g *gate) opened() (keys int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.count {
		if n >= g.n {
			keys++
		}
	}
	return keys
}
