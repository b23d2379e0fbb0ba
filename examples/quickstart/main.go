// SPDX-License-Identifier: Apache-2.0

// Quickstart is the program of the README: a service that takes orders, and a
// client that may ask for one as often as it likes.
package main

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

func main() {
	service, err := newService(context.Background(), "quickstart.db")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: service, ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://" + server.Addr)
	log.Fatal(server.ListenAndServe())
}

// [service]

// newService opens the database and puts the service together.
func newService(ctx context.Context, file string) (http.Handler, error) {
	db, err := sql.Open("sqlite", file) // your database, your driver
	if err != nil {
		return nil, err
	}
	store, err := sqlite.New(ctx, db, nil) // WAL, synchronous=FULL, group commit
	if err != nil {
		return nil, err
	}
	if err := migrate.Up(ctx, store); err != nil {
		return nil, err
	}
	if err := store.Transact(ctx, createOrders); err != nil { // your schema, in the driver's turn
		return nil, err
	}
	seen, err := ledger.New(store, nil) // recognises the same intent
	if err != nil {
		return nil, err
	}
	events, err := outbox.New(store, &outbox.Config{Source: "/orders"}) // events leave with the transaction
	if err != nil {
		return nil, err
	}
	promises, err := contract.New(contract.Operation{
		Name: "create-order", Method: "POST", Path: "/orders",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
		Effects: []contract.Effect{{Name: "order.created", By: contract.ByOutbox}},
	})
	if err != nil {
		return nil, err
	}
	server, err := ledgerhttp.NewServer(seen, ledgerhttp.Config{Contract: promises, Callers: authenticate})
	if err != nil {
		return nil, err
	}
	s := service{events}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", ledgerhttp.Atomic(server, "create-order", ledgerhttp.DecodeJSON[newOrder], s.createOrder))
	mux.Handle("GET "+contract.Path, ledgerhttp.ContractHandler(promises))
	return mux, nil
}

// [service]

// createOrders makes the table of the business.
func createOrders(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT)`)
	return err
}

type service struct {
	events *outbox.Outbox[*sql.Tx]
}

type newOrder struct {
	Item string `json:"item"`
}

type order struct {
	ID   string `json:"id"`
	Item string `json:"item"`
}

// authenticate says who calls. A real one looks at a token or a certificate.
func authenticate(*http.Request) (reprise.Caller, error) { return reprise.Unscoped, nil }

// [handler]

// createOrder runs in a transaction that the library commits.
func (s service) createOrder(ctx context.Context, tx *sql.Tx, in newOrder) (reprise.Result, error) {
	o := order{ID: string(reprise.NewKey()), Item: in.Item}
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, item) VALUES (?, ?)`, o.ID, o.Item); err != nil {
		return reprise.Result{}, err // rolls back the claim, the order and the event together
	}
	err := s.events.Enqueue(ctx, tx, reprise.Message{Type: "order.created", Subject: o.ID, Data: []byte(`{"id":"` + o.ID + `"}`)})
	if err != nil {
		return reprise.Result{}, err
	}
	return ledgerhttp.JSON(http.StatusCreated, o)
}

// [handler]
