// SPDX-License-Identifier: Apache-2.0

// Command watermill does the job with Watermill: the event is published by its SQL
// publisher in the transaction of the order. Watermill does not store answers, so
// a ledger written by hand stands beside it, or with -column the least that tells a
// repeat. No subscriber runs.
package main

import (
	"context"
	"flag"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/bench/peers/job"
)

func main() { job.Main(run) }

const topic = "orders"

func run(ctx context.Context) error {
	column := flag.Bool("column", false, "a unique column instead of a ledger")
	pool, err := job.Pool(ctx, job.LedgerSchema, job.ColumnSchema)
	if err != nil {
		return err
	}
	defer pool.Close()
	schema := sql.DefaultPostgreSQLSchema{}
	queries, err := schema.SchemaInitializingQueries(sql.SchemaInitializingQueriesParams{Topic: topic})
	if err != nil {
		return err
	}
	for _, q := range queries {
		if _, err := pool.Exec(ctx, q.Query, q.Args...); err != nil {
			return err
		}
	}
	with := job.WithLedger
	if *column {
		with = job.WithColumn
	}
	return job.Serve(job.Handler(func(ctx context.Context, key string, r job.Request) ([]byte, error) {
		return with(ctx, pool, key, r, func(ctx context.Context, tx pgx.Tx, o job.Order) error {
			// The publisher of a transaction is made for it, as the transactional
			// example of the documentation does.
			publisher, err := sql.NewPublisher(sql.TxFromPgx(tx), sql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			m := message.NewMessage(watermill.NewUUID(), o.JSON())
			m.SetContext(ctx)
			return publisher.Publish(topic, m)
		})
	}), "SELECT count(*) FROM "+schema.MessagesTable(topic),
		"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v4", "github.com/jackc/pgx/v5")
}
