// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

// TestLeaderThatOnlyLooks begins work for a key that stands for other content. As
// long as it has not claimed, nobody may be turned away on its behalf: the record
// that it is about to meet may be theirs.
func TestLeaderThatOnlyLooks(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	l, err := ledger.New(s.d, nil)
	if err != nil {
		t.Fatal(err)
	}
	result := reprise.Result{Status: 201, Body: []byte("mine")}
	order := func(ctx context.Context, tx pgx.Tx) (reprise.Result, error) {
		_, err := tx.Exec(ctx, insertOrder, string(reprise.NewKey()), 1)
		return result, err
	}
	mine := claimOf("known").Intent
	theirs := mine
	theirs.Fingerprint[1] = 2
	if _, err := l.Do(t.Context(), mine, ledger.Options{}, order); err != nil {
		t.Fatal(err)
	}

	inside, release, looked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := l.Do(t.Context(), theirs, ledger.Options{Number: 1}, func(ctx context.Context, tx pgx.Tx) (reprise.Result, error) {
			close(inside)
			<-release
			return order(ctx, tx)
		})
		looked <- err
	}()
	<-inside
	answered := make(chan error, 1)
	go func() {
		a, err := l.Do(t.Context(), mine, ledger.Options{Number: 1}, order)
		if err == nil && (!a.Replayed || string(a.Result.Body) != "mine") {
			err = errors.New("not the answer on record")
		}
		answered <- err
	}()
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the repeat: %v; want the answer on record", err)
	}
	if err := <-looked; reprise.CodeOf(err) != reprise.CodeKeyReused {
		t.Errorf("other content under a known key: %v, want %s", err, reprise.CodeKeyReused)
	}
	s.wantOrders("%", 1)

	// The mirror: once it has claimed, others are turned away at once.
	mine.Key, theirs.Key = "fresh", "fresh"
	held, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := l.Do(t.Context(), mine, ledger.Options{Number: 1}, func(ctx context.Context, tx pgx.Tx) (reprise.Result, error) {
			r, err := order(ctx, tx)
			close(held)
			<-finish
			return r, err
		})
		ended <- err
	}()
	<-held
	if _, err := l.Do(t.Context(), theirs, ledger.Options{Number: 1}, order); reprise.CodeOf(err) != reprise.CodeKeyReused {
		t.Errorf("beside a leader that has claimed: %v, want %s", err, reprise.CodeKeyReused)
	}
	close(finish)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.wantOrders("%", 2)
}
