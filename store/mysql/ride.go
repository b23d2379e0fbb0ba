// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/internal/sqltx"
	"github.com/reprise-go/reprise/store"
)

// work is what a handler does in Execute.
type work = func(ctx context.Context, tx *sql.Tx) (store.Completion, error)

// rider is an attempt whose claim rides with the first statement of its work,
// which saves a round trip. If the work has none, the claim goes out by itself: with
// COMMIT it could still be on its way when Resolve has found nothing.
type rider struct {
	claim store.Claim
	// held says that the claim succeeded. Otherwise failed is what the message
	// was answered in which it rode; nil if it was not sent.
	held   bool
	failed error
	// raised is what work panicked with before the claim had succeeded.
	raised any
}

// unclaimedError is the end of an attempt whose claim didn't succeed. A record or
// another attempt may have been in its way, and then whatever work made of it
// counts for nothing; or it is work's own failure.
type unclaimedError struct {
	rider *rider
	cause error
}

func (e *unclaimedError) Error() string { return "mysql: the claim did not succeed" }
func (e *unclaimedError) Unwrap() error { return e.cause }

// ride runs one attempt.
func (s *session) ride(ctx context.Context, c store.Claim, do work) (e store.Entry, executed bool, err error) {
	r := &rider{claim: c}
	claim := s.claim(c, false)
	s.open = true
	tx, err := s.conn.Ride(ctx, sqltx.Ahead{Text: strings.Join(claim, ";") + ";", Answered: r.answered})
	if err != nil {
		return e, false, err
	}
	e = store.Entry{ID: c.Intent.ID(), Intent: c.Intent, Token: c.Token}
	var done store.Completion
	err = s.lendBegun(ctx, tx,
		func(ctx context.Context, tx *sql.Tx) (err error) {
			done, err = r.work(ctx, tx, do)
			return err
		},
		func() ([]string, error) {
			if r.failed != nil {
				return nil, r.failed // work has hidden it
			}
			if !tx.Rode() {
				_, err := s.run(ctx, claim...)
				if r.answered(err); err != nil {
					return nil, err
				}
			}
			return s.store(&e, done)
		})
	if err != nil && !r.held {
		return e, false, s.unclaimed(ctx, r, err)
	}
	if err != nil {
		return e, false, err
	}
	return s.executed(e, done)
}

// unclaimed sorts out what an attempt without a claim has died of.
func (s *session) unclaimed(ctx context.Context, r *rider, err error) error {
	switch {
	case errors.Is(err, store.ErrCommitUnknown):
		return err
	case number(r.failed) == errNoSuchTable && errors.Is(classify(r.failed), store.ErrUnavailable):
		return classify(r.failed) // the claim's own table is missing
	case ctx.Err() == nil && r.failed != nil && severed(r.failed):
		s.lost = true
		return &staleError{classify(r.failed)}
	case ctx.Err() == nil && (r.failed == nil || claimMayBeLost(r.failed)):
		return &unclaimedError{rider: r, cause: err}
	case r.raised != nil:
		panic(r.raised)
	}
	return err
}

// answered is called with the answer to the message in which the claim rode.
func (r *rider) answered(err error) {
	r.failed = err
	r.held = err == nil
	if r.held && r.claim.Held != nil {
		r.claim.Held()
	}
}

// work calls the handler's. A panic before the claim has succeeded may be that of
// a repeat, which counts for nothing.
func (r *rider) work(ctx context.Context, tx *sql.Tx, do work) (done store.Completion, err error) {
	defer func() {
		if r.held {
			return
		}
		if p := recover(); p != nil {
			r.raised, err = p, errors.New("mysql: the work panicked")
		}
	}()
	return do(ctx, tx)
}

// claimMayBeLost reports whether an error may be that of a claim. It may also be
// that of a statement behind it in the same message.
func claimMayBeLost(err error) bool {
	return slices.Contains([]int{errDuplicate, errLockWait, errNoWait, errDeadlock}, number(err))
}

// settle ends an attempt whose claim didn't succeed: with the record that was in
// its way; with what work raised by itself; or by claiming once more, apart from
// the work, which tells the errors of the two from each other.
func (d *Driver) settle(ctx context.Context, u *unclaimedError, do work) (store.Entry, bool, error) {
	r := u.rider
	e, err := d.Find(ctx, r.claim.Intent)
	if err == nil || !errors.Is(err, store.ErrNotFound) && r.failed != nil {
		return e, false, err
	}
	switch {
	case r.failed != nil:
		return d.execute(ctx, r.claim, do)
	case r.raised != nil:
		panic(r.raised)
	}
	return store.Entry{}, false, u.cause
}
