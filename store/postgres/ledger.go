// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// Execute implements store.Ledger. BEGIN and the claim are one message, and so
// are the messages of the outbox and COMMIT.
func (d *Driver) Execute(ctx context.Context, c store.Claim,
	work func(ctx context.Context, tx *sql.Tx) (store.Completion, error),
) (e store.Entry, executed bool, err error) {
	if err := pg.CheckIntent(c.Intent); err != nil {
		return store.Entry{}, false, err
	}
	if c.Number > 1 {
		// A repeat is likely, and needs no transaction.
		if e, err := d.Find(ctx, c.Intent); !errors.Is(err, store.ErrNotFound) {
			return e, false, err
		}
	}
	a := attempt{d: d, c: c, claim: pg.NewClaim(c), work: work}
	err = a.execute(ctx)
	switch {
	case a.taken:
		// The unique index had the last word; what it has seen is committed.
		a.entry, err = d.Find(ctx, c.Intent)
		if errors.Is(err, store.ErrNotFound) {
			err = pg.ErrGone
		}
	case err == nil && !a.executed && a.entry.State != reprise.StateInProgress:
		err = pg.Settled(ctx, d.core, a.entry)
	}
	if err != nil {
		return store.Entry{}, false, err
	}
	return a.entry, a.executed, nil
}

// attempt is one call of Execute.
type attempt struct {
	d     *Driver
	c     store.Claim
	claim pg.Claim
	work  func(ctx context.Context, tx *sql.Tx) (store.Completion, error)

	entry           store.Entry
	executed, taken bool
	// begun says that the first message was answered, and closer asks for a closer
	// look than the quick claim's.
	begun, closer bool
}

// execute claims by a prepared statement. Behind a pooler each transaction may meet
// another session, so the second message prepares it before; and where that was
// done by somebody else, the claim is made without. The handler has been called at
// most once by then.
func (a *attempt) execute(ctx context.Context) error {
	begin, quick := a.d.begin+"; ", a.claim.QuickText()
	err := a.run(ctx, begin+quick, true)
	if a.unprepared(err) {
		err = a.run(ctx, begin+pg.PrepareText+"; "+quick, true)
	}
	if a.unprepared(err) || a.closer {
		err = a.run(ctx, begin+a.claim.CloserText(), false)
	}
	return err
}

// unprepared says that the session is not as the first message needs it. A handler's
// statement may fail in the same way, which says nothing of that.
func (a *attempt) unprepared(err error) bool { return !a.begun && pg.Unprepared(err) }

// run makes one transaction. prepared says that its first message needs a session
// that is, and claims quickly.
func (a *attempt) run(ctx context.Context, first string, prepared bool) error {
	a.closer = false
	return a.d.within(ctx, first, func(l *loan) (err error) {
		a.begun, l.prepared = true, prepared
		switch verdict := pg.Verdict(l.rows); verdict {
		case pg.Claimed, pg.Forgotten:
			a.entry, a.taken, err = a.d.execute(ctx, l, a.c, verdict == pg.Forgotten, a.work)
			a.executed = err == nil
			return err
		case pg.Recorded:
			a.entry, err = pg.Lookup(ctx, l.conn, a.c.Intent)
			// It may be past its tombstone, which a quick claim does not see.
			a.closer = prepared && errors.Is(err, store.ErrNotFound)
		case pg.OtherContent:
			a.entry = pg.InFlight(a.c)
		case pg.Busy:
			err, a.closer = store.ErrBusy, prepared
		default:
			err = fmt.Errorf("postgres: the claim answered %d", verdict)
		}
		l.clean = l.rollback(ctx) == nil
		return pg.Classify(err)
	})
}

// execute does the work of a claim. taken reports that another attempt at the
// intent was committed meanwhile.
func (d *Driver) execute(ctx context.Context, l *loan, c store.Claim, forgotten bool,
	work func(ctx context.Context, tx *sql.Tx) (store.Completion, error),
) (e store.Entry, taken bool, err error) {
	var done store.Completion
	var record *pg.Completion
	err = d.lend(ctx, l, "",
		func(ctx context.Context, tx *sql.Tx) (err error) {
			if forgotten {
				if err := pg.Forget(ctx, l.conn, c.Intent.ID()); err != nil {
					return err
				}
			}
			if c.Held != nil {
				c.Held()
			}
			done, err = work(ctx, tx)
			return err
		},
		func(ctx context.Context) (err error) {
			if record, err = pg.NewCompletion(c, done); err != nil {
				return err
			}
			err = record.Insert(ctx, l.conn)
			taken = pg.Taken(err)
			return pg.Left(err)
		})
	if err != nil {
		return store.Entry{}, taken, err
	}
	return record.Entry, false, nil
}

// Phase implements store.Runs.
func (d *Driver) Phase(ctx context.Context, o store.Ownership, lease time.Duration,
	work func(ctx context.Context, tx *sql.Tx) (store.PhaseWrites, error),
) error {
	token := store.NewToken()
	return d.within(ctx, d.begin+"; "+pg.TokenText(token)+"; "+pg.FenceText(o, lease), func(l *loan) error {
		if l.rows == 0 {
			l.clean = l.rollback(ctx) == nil
			return store.ErrLeaseLost
		}
		var writes store.PhaseWrites
		return d.lend(ctx, l, pg.CheckText(token)+"; ",
			func(ctx context.Context, tx *sql.Tx) (err error) {
				writes, err = work(ctx, tx)
				return err
			},
			func(ctx context.Context) error {
				return pg.Left(pg.WritePhase(ctx, l.conn, o, writes))
			})
	})
}
