// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// broken is a driver with some methods replaced.
type broken struct {
	driver

	execute  func(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error)
	find     func(ctx context.Context, i reprise.Intent) (store.Entry, error)
	resolve  func(ctx context.Context, i reprise.Intent) (store.Entry, error)
	purge    func(ctx context.Context, limit int) (int, error)
	transact func(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error
	enqueue  func(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error
	accept   func(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error)
	relay    store.Relay
}

func (b broken) Execute(ctx context.Context, c store.Claim, work atomicWork) (store.Entry, bool, error) {
	if b.execute != nil {
		return b.execute(ctx, c, work)
	}
	return b.driver.Execute(ctx, c, work)
}

func (b broken) Find(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	if b.find != nil {
		return b.find(ctx, i)
	}
	return b.driver.Find(ctx, i)
}

func (b broken) Resolve(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	if b.resolve != nil {
		return b.resolve(ctx, i)
	}
	return b.driver.Resolve(ctx, i)
}

func (b broken) Purge(ctx context.Context, limit int) (int, error) {
	if b.purge != nil {
		return b.purge(ctx, limit)
	}
	return b.driver.Purge(ctx, limit)
}

func (b broken) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	if b.transact != nil {
		return b.transact(ctx, work)
	}
	return b.driver.Transact(ctx, work)
}

func (b broken) Enqueue(ctx context.Context, tx *sql.Tx, m ...reprise.Message) error {
	if b.enqueue != nil {
		return b.enqueue(ctx, tx, m...)
	}
	return b.driver.Enqueue(ctx, tx, m...)
}

func (b broken) Accept(ctx context.Context, tx *sql.Tx, r store.Receipt) (bool, [32]byte, error) {
	if b.accept != nil {
		return b.accept(ctx, tx, r)
	}
	return b.driver.Accept(ctx, tx, r)
}

func (b broken) Relay() store.Relay {
	if b.relay != nil {
		return b.relay
	}
	return b.driver.Relay()
}

// phaseWork is the work of Phase.
type phaseWork = func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error)

// brokenRuns is a driver with some methods of its runs replaced.
type brokenRuns struct {
	driver

	entries  func(ctx context.Context, f store.EntryFilter) ([]store.Entry, error)
	begin    func(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error)
	takeover func(ctx context.Context, id reprise.IntentID, lease time.Duration) (store.Entry, error)
	renew    func(ctx context.Context, o store.Ownership, lease time.Duration) error
	withdraw func(ctx context.Context, o store.Ownership) error
	phase    func(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error
	steps    func(ctx context.Context, id reprise.IntentID) ([]store.Step, error)
	lapsed   func(ctx context.Context, after reprise.IntentID, limit int) ([]store.Entry, error)
}

func (b brokenRuns) Entries(ctx context.Context, f store.EntryFilter) ([]store.Entry, error) {
	if b.entries != nil {
		return b.entries(ctx, f)
	}
	return b.driver.Entries(ctx, f)
}

func (b brokenRuns) Begin(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (store.Entry, bool, error) {
	if b.begin != nil {
		return b.begin(ctx, c, input, lease)
	}
	return b.driver.Begin(ctx, c, input, lease)
}

func (b brokenRuns) Takeover(ctx context.Context, id reprise.IntentID, lease time.Duration) (store.Entry, error) {
	if b.takeover != nil {
		return b.takeover(ctx, id, lease)
	}
	return b.driver.Takeover(ctx, id, lease)
}

func (b brokenRuns) Renew(ctx context.Context, o store.Ownership, lease time.Duration) error {
	if b.renew != nil {
		return b.renew(ctx, o, lease)
	}
	return b.driver.Renew(ctx, o, lease)
}

func (b brokenRuns) Withdraw(ctx context.Context, o store.Ownership) error {
	if b.withdraw != nil {
		return b.withdraw(ctx, o)
	}
	return b.driver.Withdraw(ctx, o)
}

func (b brokenRuns) Phase(ctx context.Context, o store.Ownership, lease time.Duration, work phaseWork) error {
	if b.phase != nil {
		return b.phase(ctx, o, lease, work)
	}
	return b.driver.Phase(ctx, o, lease, work)
}

func (b brokenRuns) Steps(ctx context.Context, id reprise.IntentID) ([]store.Step, error) {
	if b.steps != nil {
		return b.steps(ctx, id)
	}
	return b.driver.Steps(ctx, id)
}

func (b brokenRuns) Lapsed(ctx context.Context, after reprise.IntentID, limit int) ([]store.Entry, error) {
	if b.lapsed != nil {
		return b.lapsed(ctx, after, limit)
	}
	return b.driver.Lapsed(ctx, after, limit)
}

// brokenRelay is a relay's storage with some methods replaced.
type brokenRelay struct {
	store.Relay

	acquire  func(ctx context.Context, owner string, lease time.Duration, limit int) ([]store.Slot, error)
	renew    func(ctx context.Context, slot store.Slot, lease time.Duration) error
	release  func(ctx context.Context, slot store.Slot) error
	fetch    func(ctx context.Context, slot store.Slot, limit int) (store.Page, error)
	advance  func(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error
	due      func(ctx context.Context, slot store.Slot, limit int) ([]store.Hold, error)
	subjects func(ctx context.Context, slot store.Slot) (map[string]bool, error)
	update   func(ctx context.Context, slot store.Slot, holds []store.Hold) error
	wake     chan struct{}
}

func (b brokenRelay) Acquire(ctx context.Context, owner string, lease time.Duration, limit int) ([]store.Slot, error) {
	if b.acquire != nil {
		return b.acquire(ctx, owner, lease, limit)
	}
	return b.Relay.Acquire(ctx, owner, lease, limit)
}

func (b brokenRelay) Renew(ctx context.Context, slot store.Slot, lease time.Duration) error {
	if b.renew != nil {
		return b.renew(ctx, slot, lease)
	}
	return b.Relay.Renew(ctx, slot, lease)
}

func (b brokenRelay) Release(ctx context.Context, slot store.Slot) error {
	if b.release != nil {
		return b.release(ctx, slot)
	}
	return b.Relay.Release(ctx, slot)
}

func (b brokenRelay) Fetch(ctx context.Context, slot store.Slot, limit int) (store.Page, error) {
	if b.fetch != nil {
		return b.fetch(ctx, slot, limit)
	}
	return b.Relay.Fetch(ctx, slot, limit)
}

func (b brokenRelay) Advance(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
	if b.advance != nil {
		return b.advance(ctx, slot, p, holds)
	}
	return b.Relay.Advance(ctx, slot, p, holds)
}

func (b brokenRelay) Due(ctx context.Context, slot store.Slot, limit int) ([]store.Hold, error) {
	if b.due != nil {
		return b.due(ctx, slot, limit)
	}
	return b.Relay.Due(ctx, slot, limit)
}

func (b brokenRelay) Subjects(ctx context.Context, slot store.Slot) (map[string]bool, error) {
	if b.subjects != nil {
		return b.subjects(ctx, slot)
	}
	return b.Relay.Subjects(ctx, slot)
}

func (b brokenRelay) Update(ctx context.Context, slot store.Slot, holds []store.Hold) error {
	if b.update != nil {
		return b.update(ctx, slot, holds)
	}
	return b.Relay.Update(ctx, slot, holds)
}

func (b brokenRelay) Wake() <-chan struct{} {
	if b.wake != nil {
		return b.wake
	}
	return b.Relay.Wake()
}
