// SPDX-License-Identifier: Apache-2.0

// Command bare does the job without a key: one transaction, which with -event also
// writes the event.
package main

import (
	"context"
	"flag"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/bench/peers/job"
)

func main() { job.Main(run) }

func run(ctx context.Context) error {
	event := flag.Bool("event", false, "write the event too")
	pool, err := job.Pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	count := "SELECT count(*) FROM orders" // One each, as far as the check is concerned.
	if *event {
		count = job.CountEvents
	}
	return job.Serve(job.Handler(func(ctx context.Context, _ string, r job.Request) ([]byte, error) {
		o := job.NewOrder(r)
		answer := o.JSON()
		return answer, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if *event {
				return job.WriteBoth(ctx, tx, o)
			}
			_, err := tx.Exec(ctx, job.InsertOrder, o.ID, answer)
			return err
		})
	}), count, "github.com/jackc/pgx/v5")
}
