// SPDX-License-Identifier: Apache-2.0

// Command hand does the job with a ledger and an outbox that are written by hand
// the usual way: claim, order, event, stored answer, one statement each.
package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/bench/peers/job"
)

func main() { job.Main(run) }

func run(ctx context.Context) error {
	pool, err := job.Pool(ctx, job.LedgerSchema)
	if err != nil {
		return err
	}
	defer pool.Close()
	return job.Serve(job.Handler(func(ctx context.Context, key string, r job.Request) ([]byte, error) {
		return job.WithLedger(ctx, pool, key, r, func(ctx context.Context, tx pgx.Tx, o job.Order) error {
			_, err := tx.Exec(ctx, job.InsertEvent, job.Topic, o.JSON())
			return err
		})
	}), job.CountEvents, "github.com/jackc/pgx/v5")
}
