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
	var taken bool
	err = d.within(ctx, d.begin+"; SELECT FROM generate_series(1, "+pg.NewClaim(c).Text()+")", func(l *loan) (err error) {
		switch verdict := pg.Verdict(l.rows); verdict {
		case pg.Claimed, pg.Forgotten:
			e, taken, err = d.execute(ctx, l, c, verdict == pg.Forgotten, work)
			executed = err == nil
			return err
		case pg.Recorded:
			e, err = pg.Lookup(ctx, l.conn, c.Intent)
		case pg.OtherContent:
			e = pg.InFlight(c)
		case pg.Busy:
			err = store.ErrBusy
		default:
			err = fmt.Errorf("postgres: the claim answered %d", verdict)
		}
		l.clean = l.rollback(ctx) == nil
		return pg.Classify(err)
	})
	switch {
	case taken:
		// The unique index had the last word; what it has seen is committed.
		e, err = d.Find(ctx, c.Intent)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%w: the record that was in the way is gone", store.ErrConflict)
		}
	case err == nil && !executed && e.State != reprise.StateInProgress:
		err = pg.Settled(ctx, d.core, e)
	}
	if err != nil {
		return store.Entry{}, false, err
	}
	return e, executed, nil
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
