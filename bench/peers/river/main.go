// SPDX-License-Identifier: Apache-2.0

// Command river does the job with River: the event is a job that is inserted in the
// transaction of the order. River does not store answers, so a ledger written by
// hand stands beside it, or with -column the least that tells a repeat. No worker
// runs, so nothing else uses the machine.
package main

import (
	"context"
	"flag"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/reprise-go/reprise/bench/peers/job"
)

func main() { job.Main(run) }

// created is the event.
type created struct {
	job.Order
}

// Kind names the event.
func (created) Kind() string { return job.Topic }

func run(ctx context.Context) error {
	column := flag.Bool("column", false, "a unique column instead of a ledger")
	pool, err := job.Pool(ctx, job.LedgerSchema, job.ColumnSchema)
	if err != nil {
		return err
	}
	defer pool.Close()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
	if err != nil {
		return err
	}
	with := job.WithLedger
	if *column {
		with = job.WithColumn
	}
	return job.Serve(job.Handler(func(ctx context.Context, key string, r job.Request) ([]byte, error) {
		return with(ctx, pool, key, r, func(ctx context.Context, tx pgx.Tx, o job.Order) error {
			_, err := client.InsertTx(ctx, tx, created{o}, nil)
			return err
		})
	}), "SELECT count(*) FROM river_job", "github.com/riverqueue/river", "github.com/jackc/pgx/v5")
}
