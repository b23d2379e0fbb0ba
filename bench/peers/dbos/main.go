// SPDX-License-Identifier: Apache-2.0

// Command dbos does the job with DBOS: the key is the id of a workflow that has one
// transaction. The application and DBOS share one pool, so that the transaction
// and its checkpoint are one commit, the cheapest that its documentation offers.
package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/bench/peers/job"
)

func main() { job.Main(run) }

func run(ctx context.Context) error {
	pool, err := job.Pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	app, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "orders", SystemDBPool: pool, ApplicationVersion: "1",
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	source, err := dbos.NewDataSource(app, pool)
	if err != nil {
		return err
	}
	create := func(c dbos.Context, r job.Request) (job.Order, error) {
		return dbos.RunAsTransaction(c, source, func(ctx context.Context, tx dbos.Tx) (job.Order, error) {
			o := job.NewOrder(r)
			return o, job.WriteBoth(ctx, execer{tx}, o)
		})
	}
	dbos.RegisterWorkflow(app, create)
	if err := dbos.Launch(app); err != nil {
		return err
	}
	defer dbos.Shutdown(app, 5*time.Second)
	return job.Serve(job.Handler(func(_ context.Context, key string, r job.Request) ([]byte, error) {
		h, err := dbos.RunWorkflow(app, create, r, dbos.WithWorkflowID(key))
		if err != nil {
			return nil, err
		}
		o, err := h.GetResult()
		return o.JSON(), err
	}), job.CountEvents, "github.com/dbos-inc/dbos-transact-golang", "github.com/jackc/pgx/v5")
}

// execer gives a transaction of DBOS the method of a pgx.Tx.
type execer struct{ tx dbos.Tx }

func (e execer) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	_, err := e.tx.Exec(ctx, sql, arguments...)
	return pgconn.CommandTag{}, err
}
