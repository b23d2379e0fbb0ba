// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// tries is how many connections are tried before the first message of a
// transaction gets through: those of a pool are stale when the server was
// restarted. Nothing has happened before that.
const tries = 3

// claimHead and claimTail stand around pg.ClaimFirst and make it raise any verdict
// but Claimed, which is answered with the beginning of the transaction: the server
// then skips what follows in the pipeline. The number that is no time is in the
// error.
const (
	claimHead  = "SELECT CASE verdict WHEN 1 THEN now() ELSE ('" + claimMark + "' || verdict)::timestamptz END FROM (SELECT "
	claimMark  = "reprise claim "
	claimTail  = " AS verdict) AS claim"
	verdictSQL = "SELECT " + pg.ClaimCase

	claimSQL        = claimHead + pg.ClaimFirst + claimTail
	claimWatchedSQL = claimHead + pg.ClaimFirstWatched + claimTail

	invalidTime = "22007"
)

// claim is the statement that claims c for t.
func (t *tx) claiming(c store.Claim) held {
	claim, sql := pg.NewClaim(c), claimSQL
	if !watched(t.front.conn) {
		sql = claimWatchedSQL
	}
	return held{
		sql: sql, args: claim.FirstArgs(), text: func() string { return claim.Inline(sql) }, claims: true,
		read: func(r pgx.BatchResults) error {
			return scan(r, func(scan pg.Scan) error { return scan(&t.began) })
		},
		ended: func(err error) error {
			if err == nil {
				t.claimed(pg.Claimed, c)
				return nil
			}
			if pg.SQLState(err) == invalidTime {
				// Without its quotation marks, which differ by the server's language.
				for v := pg.Busy; v <= pg.Forgotten; v++ {
					if strings.Contains(err.Error(), fmt.Sprint(claimMark, v)) {
						t.claimed(v, c)
						return errNotOurs
					}
				}
			}
			return err
		},
	}
}

// claimed notes how a claim ended.
func (t *tx) claimed(v pg.Verdict, c store.Claim) {
	t.claim = v
	if v == pg.Claimed && c.Held != nil {
		c.Held()
	}
}

// Execute implements store.Ledger. BEGIN and the claim ride with the first
// statement of work; result, messages and COMMIT are the second message.
func (d *Driver) Execute(ctx context.Context, c store.Claim,
	work func(ctx context.Context, tx pgx.Tx) (store.Completion, error),
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
	a := attempt{d: d, c: c, work: work}
	for n := 1; ; n++ {
		again, err := a.run(ctx)
		if again && n < tries {
			continue
		}
		switch {
		case err != nil:
			return store.Entry{}, false, err
		case !a.executed && a.entry.State != reprise.StateInProgress:
			if err := pg.Settled(ctx, d.core, a.entry); err != nil {
				return store.Entry{}, false, err
			}
		}
		return a.entry, a.executed, nil
	}
}

// attempt is one call of Execute.
type attempt struct {
	d    *Driver
	c    store.Claim
	work func(ctx context.Context, tx pgx.Tx) (store.Completion, error)
	// forgets says that a record past its tombstone is in the way.
	forgets bool

	entry    store.Entry
	executed bool
}

// run makes one transaction. again says that nothing was done and why is not the
// intent's.
func (a *attempt) run(ctx context.Context) (again bool, err error) {
	err = a.d.within(ctx, func(conn *pgx.Conn) error {
		t := newTx(ctx, a.d, conn, begin(a.d.begin))
		t.claim = 0
		claim := t.claiming(a.c)
		t.front.held = append(t.front.held, claim)
		if a.forgets {
			if err := a.forget(ctx, t); err != nil {
				return err
			}
		}
		if t.claim == 0 || t.claim == pg.Claimed {
			err := a.execute(ctx, t, claim)
			if !t.refused() {
				again = err != nil && (t.stale(ctx) || errors.Is(err, pg.ErrGone))
				return err
			}
		}
		again, err = a.answer(ctx, t)
		return err
	})
	return again, err
}

// execute does the work of a claim.
func (a *attempt) execute(ctx context.Context, t *tx, claim held) error {
	var done store.Completion
	var record *pg.Completion
	err := a.d.lend(ctx, t, &claim,
		func(ctx context.Context, tx pgx.Tx) (err error) {
			done, err = a.work(ctx, tx)
			return err
		},
		func() (_ *held, err error) {
			if record, err = pg.NewCompletion(a.c, done); err != nil {
				return nil, err
			}
			if t.alone() {
				return a.claiming(t, record), nil
			}
			return &held{sql: pg.RecordSQL, args: record.ArgsIn(t.began), read: func(r pgx.BatchResults) error {
				return pg.Left(scan(r, record.ScanTimes))
			}}, nil
		})
	switch {
	case pg.Taken(err):
		// The unique index had the last word; what it has seen is committed.
		a.entry, err = pg.Lookup(ctx, plain{t.front.conn}, a.c.Intent)
		return a.gone(pg.Classify(err))
	case err == nil:
		a.entry, a.executed = record.Entry, true
	}
	return err
}

// claiming is the statement that inserts the record of an intent that is not
// claimed yet, and claims it.
func (a *attempt) claiming(t *tx, record *pg.Completion) *held {
	sql := pg.RecordAndClaimSQL
	if !watched(t.front.conn) {
		sql = pg.RecordAndClaimWatchedSQL
	}
	return &held{sql: sql, args: record.ArgsClaiming(pg.NewClaim(a.c)), read: func(r pgx.BatchResults) error {
		err := scan(r, record.ScanTimes)
		switch {
		case err == nil:
			t.claimed(pg.Claimed, a.c)
		case pg.Unclaimed(err):
			t.claimed(pg.Busy, a.c)
			return errNotOurs
		}
		return err
	}}
}

// scan reads one row of a pipeline.
func scan(r pgx.BatchResults, row pg.Row) error {
	rows, err := r.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	read := false
	if rows.Next() {
		if err := row(rows.Scan); err != nil {
			return fmt.Errorf("%w: %w", errMisread, err)
		}
		read = true
	}
	rows.Close()
	if err := rows.Err(); err != nil || read {
		return err
	}
	return fmt.Errorf("%w: it has no row", errMisread)
}

// errMisread is the error of an answer that did arrive, of which nobody knows what
// it says.
var errMisread = errors.New("pgxv5: an answer of the server can't be read")

// answer ends an attempt whose intent is not its own.
func (a *attempt) answer(ctx context.Context, t *tx) (again bool, err error) {
	conn := t.front.conn
	if err := rollback(ctx, conn); err != nil {
		return false, reached(ctx, conn, err)
	}
	if t.claim == pg.Recorded {
		a.entry, err = pg.Lookup(ctx, plain{conn}, a.c.Intent)
		err = a.gone(reached(ctx, conn, pg.Classify(err)))
		return errors.Is(err, pg.ErrGone), err
	}
	// A closer look. What it locks it lets go of at once.
	var verdict int64
	err = plain{conn}.Query(ctx, verdictSQL, func(scan pg.Scan) error { return scan(&verdict) }, pg.NewClaim(a.c).Args()...)
	switch {
	case err != nil:
		return false, reached(ctx, conn, pg.Classify(err))
	case pg.Verdict(verdict) == pg.OtherContent:
		a.entry = pg.InFlight(a.c)
		return false, nil
	}
	return false, store.ErrBusy // by now it may be over, which the next attempt will see
}

// gone understands that a record which was in the way can't be found: it is past
// its tombstone, or was deleted at this moment.
func (a *attempt) gone(err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	a.forgets = true
	return pg.ErrGone
}

// forget claims an intent by itself, and deletes a record past its tombstone.
func (a *attempt) forget(ctx context.Context, t *tx) error {
	conn := t.front.conn
	back := plain{&front{conn: conn, held: t.front.held[:1]}}
	var verdict int64
	err := back.Query(ctx, verdictSQL, func(scan pg.Scan) error { return scan(&verdict) }, pg.NewClaim(a.c).Args()...)
	if err == nil && pg.Verdict(verdict) == pg.Forgotten {
		err, verdict = pg.Forget(ctx, back, a.c.Intent.ID()), int64(pg.Claimed)
	}
	if err != nil {
		err = reached(ctx, conn, pg.Classify(err))
		_ = rollback(ctx, conn)
		return err
	}
	t.front.held, t.front.reached = nil, true
	t.claimed(pg.Verdict(verdict), a.c)
	return nil
}

// Phase implements store.Runs. The lease is checked before work begins.
func (d *Driver) Phase(ctx context.Context, o store.Ownership, lease time.Duration,
	work func(ctx context.Context, tx pgx.Tx) (store.PhaseWrites, error),
) error {
	return d.first(ctx, func(conn *pgx.Conn) (*tx, error) {
		t := newTx(ctx, d, conn, begin(d.begin))
		tag, err := t.front.Exec(ctx, pg.FenceText(o, lease))
		if err == nil && tag.RowsAffected() == 0 {
			err = store.ErrLeaseLost
		}
		if err != nil {
			err = reached(ctx, conn, pg.Classify(err))
			_ = rollback(ctx, conn)
			return t, err
		}
		var writes store.PhaseWrites
		return t, d.lend(ctx, t, nil,
			func(ctx context.Context, tx pgx.Tx) (err error) {
				writes, err = work(ctx, tx)
				return err
			},
			func() (*held, error) {
				// The work has finished: a caller that leaves now undoes nothing (rule L13).
				return nil, pg.WritePhase(context.WithoutCancel(ctx), plain{t.front}, o, writes)
			})
	})
}

// Transact implements store.Driver. BEGIN rides with the first statement.
func (d *Driver) Transact(ctx context.Context, work func(ctx context.Context, tx pgx.Tx) error) error {
	return d.first(ctx, func(conn *pgx.Conn) (*tx, error) {
		t := newTx(ctx, d, conn, begin(d.begin))
		return t, d.lend(ctx, t, nil, work, nil)
	})
}

// first repeats a transaction whose first message found a stale connection.
func (d *Driver) first(ctx context.Context, run func(conn *pgx.Conn) (*tx, error)) error {
	for n := 1; ; n++ {
		again := false
		err := d.within(ctx, func(conn *pgx.Conn) error {
			t, err := run(conn)
			again = err != nil && n < tries && t.stale(ctx)
			return err
		})
		if !again {
			return err
		}
	}
}

// within lends a connection to one transaction.
func (d *Driver) within(ctx context.Context, use func(conn *pgx.Conn) error) error {
	done, err := d.use()
	if err != nil {
		return err
	}
	defer done()
	for n := 1; ; n++ {
		conn, err := d.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // which closes one that is still in a transaction
		err = watch(ctx, conn.Conn())
		switch {
		case err == nil:
			return use(conn.Conn())
		case n == tries || !conn.Conn().IsClosed() || ctx.Err() != nil:
			return reached(ctx, conn.Conn(), pg.Classify(err))
		}
		conn.Release()
	}
}
