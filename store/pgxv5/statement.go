// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// read looks at what a handler wants to run: it rewrites it, because a rewriter may
// return anything, and refuses what would end the transaction.
func (t *tx) read(ctx context.Context, sql string, args []any) (string, []any, error) {
	var options []any
	var rewriter pgx.QueryRewriter
	for len(args) > 0 && hasOptions(args) {
		if r, ok := args[0].(pgx.QueryRewriter); ok {
			rewriter = r
		} else {
			options = append(options, args[0])
		}
		args = args[1:]
	}
	if rewriter != nil {
		var conn *pgx.Conn // pgx's own rewriters don't look at it
		switch rewriter.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
		default:
			conn = t.Conn()
		}
		var err error
		if sql, args, err = rewriter.RewriteQuery(ctx, conn, sql, args); err != nil {
			return "", nil, fmt.Errorf("pgxv5: rewrite query: %w", err)
		}
	}
	if err := t.refuse(sql); err != nil {
		return "", nil, err
	}
	return sql, append(options, args...), nil
}

// Exec implements pgx.Tx.
func (t *tx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return tag, err
	}
	defer end()
	defer func() { err = t.leave(err) }()
	if sql, args, err = t.read(ctx, sql, args); err != nil {
		return tag, err
	}
	return t.front.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return &rows{failed: err}, err
	}
	var raw pgx.Rows
	if sql, args, err = t.read(ctx, sql, args); err == nil {
		raw, err = t.front.Query(ctx, sql, args...)
	}
	if err != nil {
		end()
		err = t.leave(err)
		return &rows{failed: err}, err
	}
	r := &rows{t: t, raw: raw, end: end}
	t.opened(r.shut)
	_ = t.leave(nil)
	return r, nil
}

// opened remembers what is open on the connection.
func (t *tx) opened(closing func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = closing
}

// QueryRow implements pgx.Tx.
func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, _ := t.Query(ctx, sql, args...)
	return row{r}
}

// Prepare implements pgx.Tx. As with every pgx.Tx the statement stays on the
// connection, for whoever has it next.
func (t *tx) Prepare(ctx context.Context, name, sql string) (sd *pgconn.StatementDescription, err error) {
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	defer func() { err = t.leave(err) }()
	if err := t.refuse(sql); err != nil {
		return nil, err
	}
	if err := t.front.flush(ctx); err != nil {
		return nil, err
	}
	return t.front.conn.Prepare(ctx, name, sql)
}

// CopyFrom implements pgx.Tx.
func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (n int64, err error) {
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	defer func() { err = t.leave(err) }()
	if err := t.front.flush(ctx); err != nil {
		return 0, err
	}
	return t.front.conn.CopyFrom(ctx, table, columns, src)
}

// SendBatch implements pgx.Tx.
func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	queries, err := t.queries(ctx, b)
	var raw pgx.BatchResults
	switch {
	case err != nil:
	case len(t.front.held) > 0:
		raw, err = t.front.send(ctx, queries...)
	default:
		raw = t.front.conn.SendBatch(ctx, &pgx.Batch{QueuedQueries: queries})
	}
	if err != nil {
		end()
		return pgx.FailedBatchResults(b, t.leave(err))
	}
	r := &results{t: t, raw: raw, end: end}
	t.opened(r.shut)
	_ = t.leave(nil)
	return r
}

// queries returns copies of a batch's queries that can be sent.
func (t *tx) queries(ctx context.Context, b *pgx.Batch) ([]*pgx.QueuedQuery, error) {
	out := make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		sql, args, err := t.read(ctx, q.SQL, q.Arguments)
		if err != nil {
			return nil, err
		}
		if hasOptions(args) {
			return nil, errors.New("pgxv5: a query of a batch takes no options but a QueryRewriter")
		}
		copied := *q
		copied.SQL, copied.Arguments = sql, args
		if q.Fn != nil {
			copied.Fn = t.callback(q.Fn)
		}
		out[i] = &copied
	}
	return out, nil
}

// Queue adds statements to a transaction of a handler whose answers the handler
// does not need. They are sent in front of its next statement, or with the result:
// a handler that does nothing else takes one round trip for all, from the claim to
// COMMIT. An error of one of them fails the transaction, and whoever called for it
// is told; so does one of a batch with callbacks, for whose answers nobody waits. The
// arguments are read when they are sent: leave them as they are until the handler has
// returned.
func Queue(ctx context.Context, lent pgx.Tx, b *pgx.Batch) error {
	t, ok := lent.(*tx)
	if !ok {
		return fmt.Errorf("%w: pgxv5.Queue needs the transaction that a handler received, not %T", store.ErrTxMisuse, lent)
	}
	ctx, end, err := t.enter(ctx)
	if err != nil {
		return err
	}
	defer end()
	queries, err := t.queries(ctx, b)
	for _, q := range queries {
		if q.Fn != nil {
			err = errors.New("pgxv5: a query with a callback can't be queued; use SendBatch")
			break
		}
		rows := pg.OnlyRows(q.SQL)
		if !rows && !pg.Single(q.SQL) {
			err = fmt.Errorf("pgxv5: %.100q is not one statement; queue each by itself", q.SQL)
			break
		}
		t.front.held = append(t.front.held, held{sql: q.SQL, args: q.Arguments, rows: rows})
	}
	return t.leave(err)
}
