// SPDX-License-Identifier: Apache-2.0

// Package orders is the business of the examples: taking orders on SQLite. It
// knows no router.
package orders

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"time"

	_ "modernc.org/sqlite" // The driver that the examples bring.

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// Create is the operation that the examples serve.
const Create reprise.Operation = "create-order"

// Path of the operation, as net/http and chi write it.
const Path = "/customers/{customer}/orders"

// Order is a row of the table orders.
type Order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
}

// ErrSoldOut is the error of an item that is not there.
var ErrSoldOut = errors.New("sold out")

// Insert writes an order in the transaction of its request.
func Insert(ctx context.Context, tx *sql.Tx, customer, item string) (Order, error) {
	r, err := tx.ExecContext(ctx, `INSERT INTO orders (customer, item) VALUES (?, ?)`, customer, item)
	if err != nil {
		return Order{}, err
	}
	if item == "unicorn" {
		return Order{}, ErrSoldOut // After the row was written: it must not stay.
	}
	id, err := r.LastInsertId()
	return Order{ID: id, Customer: customer, Item: item}, err
}

// Open opens the database in the file path, with the ledger beside the orders.
// Close the *sql.DB after the driver.
func Open(ctx context.Context, path string) (*sql.DB, *sqlite.Driver, error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, nil, err
	}
	driver, err := sqlite.New(ctx, db, nil)
	if err == nil {
		err = migrate.Up(ctx, driver)
	}
	if err == nil {
		// In the driver's turn: another process may be at the file at this moment.
		err = driver.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (
				id INTEGER PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL)`)
			return err
		})
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, driver, nil
}

// NewServer declares the operation and returns what handlers are made of.
func NewServer(d store.Driver[*sql.Tx]) (*ledgerhttp.Server[*sql.Tx], error) {
	promises, err := contract.New(contract.Operation{
		Name: Create, Method: http.MethodPost, Path: Path,
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
	})
	if err != nil {
		return nil, err
	}
	l, err := ledger.New(d, nil)
	if err != nil {
		return nil, err
	}
	return ledgerhttp.NewServer(l, ledgerhttp.Config{Contract: promises, Callers: authenticate})
}

// authenticate takes the token for the name of its owner. A real service looks
// it up.
func authenticate(r *http.Request) (reprise.Caller, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", errors.New("no bearer token")
	}
	return reprise.Caller(name), nil
}

// Main serves the routes of one example on 127.0.0.1:8080, until it fails.
func Main(routes func(*ledgerhttp.Server[*sql.Tx]) http.Handler) error {
	db, driver, err := Open(context.Background(), "orders.db")
	if err != nil {
		return err
	}
	server, err := NewServer(driver)
	if err == nil {
		s := &http.Server{Addr: "127.0.0.1:8080", Handler: routes(server), ReadHeaderTimeout: 5 * time.Second}
		err = s.ListenAndServe()
	}
	return errors.Join(err, driver.Close(), db.Close())
}
