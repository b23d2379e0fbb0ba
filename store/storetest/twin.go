// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func waitingTwin[TTx any](f *fixture[TTx]) {
	first := message("m-1", "a")
	f.refuseTwins("together", 0, first, message("m-2", "a"), first)
	f.enqueue(f.d, first)
	f.refuseTwins("waiting", 1, first)
	f.relay(f.d, "relay").wantDelivered("m-1")
}

func heldTwin[TTx any](f *fixture[TTx]) {
	first, stranger := message("m-1", "a"), message("m-1", "b")
	stranger.Source = "/depot"
	f.enqueue(f.d, first)
	r := f.relay(f.d, "relay")
	if n := r.hold(func(string) *store.Hold { return &store.Hold{State: store.HoldRetry, Attempts: 1} }); n != 1 {
		f.Fatalf("%d messages were fetched, want 1", n)
	}
	f.refuseTwins("held", 0, first)
	f.enqueue(f.d, stranger) // the mirror: another source's message of this id
	r.update(r.wantDue("m-1")[0], delivered)
	r.wantDelivered("m-1")
}

// refuseTwins enqueues messages that can't all be kept, beside an effect, in
// every kind of transaction. Nothing of it may be kept; waiting is how many messages
// there were before.
func (f *fixture[TTx]) refuseTwins(name string, waiting int, twins ...reprise.Message) {
	f.Helper()
	second, _ := f.open()
	refused := func(what string, err error) {
		f.Helper()
		if !errors.Is(err, store.ErrDuplicateMessage) {
			f.Errorf("%s with a message of a known identity: error %v, want ErrDuplicateMessage", what, err)
		}
		f.wantEffects(name, 0)
	}
	work := func(d store.Driver[TTx]) func(ctx context.Context, tx TTx) error {
		return func(ctx context.Context, tx TTx) error {
			if err := f.effect(ctx, tx, name); err != nil {
				return err
			}
			return errors.Join(d.Enqueue(ctx, tx, message("bystander", "c")), d.Enqueue(ctx, tx, twins...))
		}
	}
	for _, m := range modes[TTx]() {
		a := m.start(f, name)
		refused(m.name, a.run(f.ctx, work(f.d)))
		a.wantNothing()
	}
	refused("another process", again(f.ctx, func() error { return second.Transact(f.ctx, work(second)) }))

	tx, err := f.plain.Begin(f.ctx)
	if err != nil {
		f.Fatalf("begin a plain transaction: %v", err)
	}
	err = work(f.d)(f.ctx, tx)
	if end := f.plain.Rollback(f.ctx, tx); end != nil {
		f.Fatalf("end of a plain transaction: %v", end)
	}
	refused("a plain transaction", err)
	if b, err := second.Relay().Backlog(f.ctx); err != nil || b.Waiting != waiting {
		f.Errorf("backlog %+v, error %v; want %d waiting", b, err, waiting)
	}
}
