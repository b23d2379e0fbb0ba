// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// memory is a database in memory, one transaction at a time, on the clock of its
// test. Tests of staged runs use it where time must pass or where a process must
// die between two facts; what a real database does is tested with a real one.
type memory struct {
	mu      sync.Mutex
	entries map[reprise.IntentID]*store.Entry
	steps   map[reprise.IntentID][]store.Step
	// rows are the committed business writes.
	rows []string
}

func newMemory() *memory {
	return &memory{entries: make(map[reprise.IntentID]*store.Entry), steps: make(map[reprise.IntentID][]store.Step)}
}

// entry returns the record of an intent, zero if there is none.
func (m *memory) entry(in reprise.Intent) store.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[in.ID()]; e != nil {
		return *e
	}
	return store.Entry{}
}

// fault is what happens to one commit.
type fault int

const (
	none fault = iota
	// conflict: the database ends the transaction in favour of another one.
	conflict
	// lostKept and lostDropped: the commit is not answered, and was or was not made.
	lostKept
	lostDropped
	// cutAfter and cutBefore: the same, and from then on the process reaches the
	// database no more. That is also what the death of a process leaves there.
	cutAfter
	cutBefore
)

// process is one process that uses a memory: a driver that counts its commits
// and meets a fault at one of them. A process that is cut off writes and reads
// nothing any more.
type process struct {
	store.Driver[*memoryTx]
	db *memory
	// at is the commit, from 1, that meets the fault; 0 for none.
	at    int
	fault fault

	// frozen, if not nil, holds the process up until it is closed, as SIGSTOP does.
	frozen chan struct{}
	// slow is how long a renewal is on its way.
	slow time.Duration

	commits int
	hit     bool
	cut     bool
	// blind lets Find fail.
	blind bool
}

type memoryTx struct{ rows []string }

func (tx *memoryTx) insert(row string) { tx.rows = append(tx.rows, row) }

var errCut = errors.New("the process is cut off")

// reach begins a transaction and holds the database until end is called.
func (p *process) reach() (end func(), err error) {
	p.db.mu.Lock()
	if frozen := p.frozen; frozen != nil {
		p.db.mu.Unlock()
		<-frozen
		p.db.mu.Lock()
	}
	if p.cut {
		p.db.mu.Unlock()
		return nil, errors.Join(store.ErrUnavailable, errCut)
	}
	return p.db.mu.Unlock, nil
}

// cutOff lets the process reach the database no more.
func (p *process) cutOff() {
	p.db.mu.Lock()
	defer p.db.mu.Unlock()
	p.cut = true
}

// freeze stops the process where it next reaches for the database.
func (p *process) freeze(thaw chan struct{}) {
	p.db.mu.Lock()
	defer p.db.mu.Unlock()
	p.frozen = thaw
}

// commit makes one commit, and is where faults happen.
func (p *process) commit(apply func()) error {
	p.commits++
	f := none
	if p.commits == p.at {
		f, p.hit = p.fault, true
	}
	if f == none || f == lostKept || f == cutAfter {
		apply()
	}
	p.cut = f == cutAfter || f == cutBefore
	switch f {
	case none:
		return nil
	case conflict:
		return store.ErrConflict
	}
	return store.ErrCommitUnknown
}

func (p *process) Begin(_ context.Context, c store.Claim, input []byte, lease time.Duration) (e store.Entry, owned bool, err error) {
	end, err := p.reach()
	if err != nil {
		return e, false, err
	}
	defer end()
	old := p.db.entries[c.Intent.ID()]
	if old != nil && (old.State != reprise.StateInProgress || old.Intent != c.Intent || time.Now().Before(old.LeaseUntil)) {
		return *old, false, nil
	}
	e = store.Entry{
		ID: c.Intent.ID(), Intent: c.Intent, State: reprise.StateInProgress, Input: bytes.Clone(input), ClaimedAt: time.Now(),
	}
	if old != nil {
		e = *old
	}
	e.Token, e.Epoch, e.Drives, e.LeaseUntil = c.Token, e.Epoch+1, e.Drives+1, time.Now().Add(lease)
	err = p.commit(func() { p.db.entries[e.ID] = &e })
	return e, err == nil, err
}

func (p *process) Takeover(_ context.Context, id reprise.IntentID, lease time.Duration) (e store.Entry, err error) {
	end, err := p.reach()
	if err != nil {
		return e, err
	}
	defer end()
	old := p.db.entries[id]
	if old == nil || old.State != reprise.StateInProgress || time.Now().Before(old.LeaseUntil) {
		return e, store.ErrLeaseLost
	}
	e = *old
	e.Epoch, e.Drives, e.LeaseUntil = e.Epoch+1, e.Drives+1, time.Now().Add(lease)
	return e, p.commit(func() { p.db.entries[id] = &e })
}

// owned returns the record if o still holds it. The database is held.
func (p *process) owned(o store.Ownership) (*store.Entry, error) {
	e := p.db.entries[o.ID]
	if e == nil || e.State != reprise.StateInProgress || e.Epoch != o.Epoch {
		return nil, store.ErrLeaseLost
	}
	return e, nil
}

// Renew is not one of the commits that meet faults: it decides nothing. One that
// is on its way arrives, whatever becomes of its context.
func (p *process) Renew(_ context.Context, o store.Ownership, lease time.Duration) error {
	if lease > 0 {
		time.Sleep(p.slow)
	}
	end, err := p.reach()
	if err != nil {
		return err
	}
	defer end()
	e, err := p.owned(o)
	if err == nil {
		e.LeaseUntil = time.Now().Add(lease)
	}
	return err
}

func (p *process) Withdraw(_ context.Context, o store.Ownership) error {
	end, err := p.reach()
	if err != nil {
		return err
	}
	defer end()
	if _, err := p.owned(o); err != nil {
		return err
	}
	if len(p.db.steps[o.ID]) > 0 {
		return errors.New("the run has steps")
	}
	return p.commit(func() { delete(p.db.entries, o.ID) })
}

func (p *process) Phase(ctx context.Context, o store.Ownership, lease time.Duration,
	work func(ctx context.Context, tx *memoryTx) (store.PhaseWrites, error),
) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	end, err := p.reach()
	if err != nil {
		return err
	}
	defer end()
	e, err := p.owned(o)
	if err != nil {
		return err
	}
	tx := &memoryTx{}
	w, err := work(ctx, tx)
	if err != nil {
		return err
	}
	return p.commit(func() {
		p.db.rows = append(p.db.rows, tx.rows...)
		e.LeaseUntil = time.Now().Add(lease)
		if w.Step != nil {
			steps := slices.DeleteFunc(p.db.steps[o.ID], func(s store.Step) bool { return s.Name == w.Step.Name })
			p.db.steps[o.ID] = append(steps, *w.Step)
		}
		if w.Complete != nil {
			e.State, e.Result = reprise.StateCompleted, w.Complete.Result
			e.CompletedAt, e.ExpiresAt = time.Now(), time.Now().Add(w.Complete.Retention)
		}
	})
}

func (p *process) Steps(_ context.Context, id reprise.IntentID) ([]store.Step, error) {
	end, err := p.reach()
	if err != nil {
		return nil, err
	}
	defer end()
	return slices.Clone(p.db.steps[id]), nil
}

func (p *process) Lapsed(_ context.Context, after reprise.IntentID, limit int) (page []store.Entry, err error) {
	end, err := p.reach()
	if err != nil {
		return nil, err
	}
	defer end()
	for id, e := range p.db.entries {
		if e.State == reprise.StateInProgress && !time.Now().Before(e.LeaseUntil) && bytes.Compare(id[:], after[:]) > 0 {
			page = append(page, *e)
		}
	}
	slices.SortFunc(page, func(a, b store.Entry) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return page[:min(len(page), limit)], nil
}

func (p *process) Find(_ context.Context, i reprise.Intent) (store.Entry, error) {
	end, err := p.reach()
	if err != nil {
		return store.Entry{}, err
	}
	defer end()
	if p.blind {
		return store.Entry{}, store.ErrUnavailable
	}
	if e := p.db.entries[i.ID()]; e != nil {
		return *e, nil
	}
	return store.Entry{}, store.ErrNotFound
}

func (p *process) Resolve(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	return p.Find(ctx, i)
}
