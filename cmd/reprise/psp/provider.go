// SPDX-License-Identifier: Apache-2.0

// Package psp simulates a payment-service provider: a system of somebody else,
// with its own database and its own idea of idempotency, and with faults that
// can be ordered. It deliberately uses nothing of the library's ledger, because
// the systems that people call don't either. It reads numbers and keys as the
// library does.
//
// A charge is recognised by its Idempotency-Key for KeyLife. The same key with
// the same parameters gives the charge that was made, with other parameters 400,
// and while the first request is at work 409.
package psp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/serve"
)

// KeyLife is how long a charge's key is remembered.
const KeyLife = 24 * time.Hour

// DefaultDeclineOver is the limit of Config.DeclineOver that the program uses.
const DefaultDeclineOver = 100_000

// Config says how a provider behaves.
type Config struct {
	// Path of the SQLite file that holds its charges. Required.
	Path string
	// Latency is how long a charge takes. Defaults to 0.
	Latency time.Duration
	// DeclineOver is the largest amount, in minor units, that is captured; larger
	// ones are declined. Defaults to 0, which declines everything.
	DeclineOver int64
	// Now is the clock that ages keys. Defaults to time.Now.
	Now func() time.Time
}

// Provider is one payment provider. It is safe for concurrent use.
type Provider struct {
	config Config
	book   *book
	faults faults
	desk   desk

	closeOnce sync.Once
	closing   chan struct{}
}

// Open opens the provider's file and makes it if it isn't there. The error is of
// exit.Usage for a config that can't hold, and of exit.Environment for a file
// that can't be used.
func Open(ctx context.Context, c Config) (*Provider, error) {
	switch {
	case c.Path == "":
		return nil, exit.Misused("give the path of a file", "the provider has no database file")
	case c.Latency < 0:
		return nil, exit.Misused("give a duration such as 50ms", "the provider's latency %v is negative", c.Latency)
	case c.DeclineOver < 0:
		return nil, exit.Misused("give an amount in minor units", "the provider can't decline over %d", c.DeclineOver)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	b, err := openBook(ctx, c.Path)
	if err != nil {
		return nil, exit.Refused("see that the file can be written and belongs to reprise psp, or name another one",
			"the provider can't use its database %s: %w", c.Path, err)
	}
	return &Provider{config: c, book: b, closing: make(chan struct{})}, nil
}

// Release ends every request that hangs because of a fault, so that the
// listener can drain. No request hangs afterwards.
func (p *Provider) Release() { p.closeOnce.Do(func() { close(p.closing) }) }

// Close releases what hangs and closes the file. Requests must have ended.
func (p *Provider) Close() error {
	p.Release()
	return p.book.close()
}

// Handler returns the provider's API.
func (p *Provider) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", withoutQuery(p.charge))
	mux.HandleFunc("GET /charges", p.list)
	mux.HandleFunc("GET /charges.csv", withoutQuery(p.settlement))
	mux.HandleFunc("POST /faults", withoutQuery(p.orderFaults))
	mux.HandleFunc("GET /faults", withoutQuery(p.showFaults))
	return serve.Problems(mux)
}

// withoutQuery refuses query parameters where there are none.
func withoutQuery(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			invalid(w, errors.New("this resource has no query parameters"))
			return
		}
		h(w, r)
	}
}

// desk knows the keys that are being worked on. It only makes a concurrent
// repeat be told so; that a key charges once is the book's promise.
type desk struct {
	mu   sync.Mutex
	busy map[reprise.Key]bool
}

// enter takes the key, and reports false if somebody else has it.
func (d *desk) enter(k reprise.Key) (leave func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[k] {
		return nil, false
	}
	if d.busy == nil {
		d.busy = make(map[reprise.Key]bool)
	}
	d.busy[k] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, k)
	}, true
}
