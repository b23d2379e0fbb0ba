// SPDX-License-Identifier: Apache-2.0

// Command reprise does the job with reprise: a typed handler that gets its own
// transaction, inserts the order and enqueues the event.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/bench/peers/job"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/pgxv5"
	"github.com/reprise-go/reprise/store/postgres"
)

func main() { job.Main(run) }

func run(ctx context.Context) error {
	driver := flag.String("driver", "pgx", "pgx or sql")
	cache := flag.Duration("cache", 0, "how long the process answers repeats from memory")
	pool, err := job.Pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	var h http.Handler
	switch *driver {
	case "pgx":
		h, err = onPgx(ctx, pool, *cache)
	case "sql":
		h, err = onSQL(ctx, pool, *cache)
	default:
		err = fmt.Errorf("there is no driver %q", *driver)
	}
	if err != nil {
		return err
	}
	return job.Serve(h, "SELECT count(*) FROM reprise_outbox", "github.com/jackc/pgx/v5")
}

func onPgx(ctx context.Context, pool *pgxpool.Pool, cache time.Duration) (http.Handler, error) {
	d, err := pgxv5.New(ctx, pool, nil)
	if err != nil {
		return nil, err
	}
	if err := migrate.Up(ctx, d); err != nil {
		return nil, err
	}
	return handler(d, cache, func(ctx context.Context, tx pgx.Tx, id string, content []byte) error {
		_, err := tx.Exec(ctx, job.InsertOrder, id, content)
		return err
	})
}

func onSQL(ctx context.Context, pool *pgxpool.Pool, cache time.Duration) (http.Handler, error) {
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	conns := int(pool.Config().MaxConns)
	pool.Close() // All programs have the same number of connections.
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	d, err := postgres.New(ctx, db, nil)
	if err != nil {
		return nil, err
	}
	if err := migrate.Up(ctx, d); err != nil {
		return nil, err
	}
	return handler(d, cache, func(ctx context.Context, tx *sql.Tx, id string, content []byte) error {
		_, err := tx.ExecContext(ctx, job.InsertOrder, id, content)
		return err
	})
}

// handler is what a service's author writes, whatever the driver.
func handler[TTx any](d store.Driver[TTx], cache time.Duration, insert func(ctx context.Context, tx TTx, id string, content []byte) error) (http.Handler, error) {
	l, err := ledger.New(d, &ledger.Config{CacheFor: cache})
	if err != nil {
		return nil, err
	}
	events, err := outbox.New(d, &outbox.Config{Source: "/bench"})
	if err != nil {
		return nil, err
	}
	promises, err := contract.New(contract.Operation{
		Name: "create-order", Method: http.MethodPost, Path: "/orders",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
	})
	if err != nil {
		return nil, err
	}
	server, err := ledgerhttp.NewServer(l, ledgerhttp.Config{
		Contract: promises, Callers: func(*http.Request) (reprise.Caller, error) { return reprise.Unscoped, nil },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", ledgerhttp.Atomic(server, "create-order", ledgerhttp.DecodeJSON[job.Request],
		func(ctx context.Context, tx TTx, in job.Request) (reprise.Result, error) {
			o := job.NewOrder(in)
			content := o.JSON()
			if err := insert(ctx, tx, o.ID, content); err != nil {
				return reprise.Result{}, err
			}
			if err := events.Enqueue(ctx, tx, reprise.Message{Type: job.Topic, Subject: o.ID, Data: content}); err != nil {
				return reprise.Result{}, err
			}
			return ledgerhttp.JSON(http.StatusCreated, o)
		}))
	return mux, nil
}
