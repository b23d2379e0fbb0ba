// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// scripted is a driver that answers by script, for what a database can't be made
// to do at will, and under a fake clock. Methods without a script panic.
type scripted struct {
	store.Driver[*scriptedTx]
	execute  func(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error)
	resolve  func(ctx context.Context, i reprise.Intent) (store.Entry, error)
	find     func(ctx context.Context, i reprise.Intent) (store.Entry, error)
	transact func(ctx context.Context, work func(ctx context.Context, tx *scriptedTx) error) error
	purge    func(ctx context.Context, limit int) (int, error)
}

type scriptedTx struct{}

type scriptedWork = func(ctx context.Context, tx *scriptedTx) (store.Completion, error)

func (s *scripted) Execute(ctx context.Context, c store.Claim, work scriptedWork) (store.Entry, bool, error) {
	return s.execute(ctx, c, work)
}

func (s *scripted) Resolve(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	return s.resolve(ctx, i)
}

func (s *scripted) Find(ctx context.Context, i reprise.Intent) (store.Entry, error) {
	return s.find(ctx, i)
}

func (s *scripted) Transact(ctx context.Context, work func(ctx context.Context, tx *scriptedTx) error) error {
	return s.transact(ctx, work)
}

func (s *scripted) Purge(ctx context.Context, limit int) (int, error) { return s.purge(ctx, limit) }

// completed is the record that a driver makes of a completion.
func completed(c store.Claim, done store.Completion) store.Entry {
	e := store.Entry{ID: c.Intent.ID(), Intent: c.Intent, Token: c.Token, State: reprise.StateCompleted, Result: done.Result}
	if done.OmitBody {
		e.State, e.Result.Body, e.Result.Header = reprise.StateTombstone, nil, nil
	}
	return e
}
