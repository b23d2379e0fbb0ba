// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/store/pgxv5"
	"github.com/reprise-go/reprise/torture/crash"
)

// closerFunc is a function that closes something.
type closerFunc func()

// Close implements io.Closer.
func (f closerFunc) Close() error { f(); return nil }

// execPGX runs a statement of the business and reads its answer.
func execPGX(ctx context.Context, tx pgx.Tx, query string) error {
	_, err := tx.Exec(ctx, query)
	return err
}

// queuePGX leaves a statement to go out with everything else, in one message.
func queuePGX(ctx context.Context, tx pgx.Tx, query string) error {
	var b pgx.Batch
	b.Queue(query)
	return pgxv5.Queue(ctx, tx, &b)
}

// openPGXv5 opens a service on pgx itself.
func openPGXv5(operation string, exec func(context.Context, pgx.Tx, string) error) opener {
	return func(ctx context.Context, dsn string, provider *sql.DB) (crash.Program, error) {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return nil, err
		}
		d, err := pgxv5.New(ctx, pool, nil)
		if err != nil {
			pool.Close()
			return nil, err
		}
		return openService(d, operation, provider, exec, closers(closerFunc(pool.Close), d))
	}
}

func init() {
	for _, operation := range []string{atomicMode, stagedMode, once} {
		programs["pgxv5 "+operation] = openPGXv5(operation, execPGX)
		programs["pgxv5/queue "+operation] = openPGXv5(operation, queuePGX)
	}
}
