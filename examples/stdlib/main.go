// SPDX-License-Identifier: Apache-2.0

// Stdlib serves orders with net/http alone and a typed handler.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/examples/orders"
	"github.com/reprise-go/reprise/ledgerhttp"
)

func main() { log.Fatal(orders.Main(routes)) }

func routes(server *ledgerhttp.Server[*sql.Tx]) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+orders.Path, ledgerhttp.Atomic(server, orders.Create, decode, create))
	return mux
}

type request struct {
	customer string
	Item     string `json:"item"`
}

func decode(r *ledgerhttp.Request) (request, error) {
	in, err := ledgerhttp.DecodeJSON[request](r)
	if err == nil && in.Item == "" {
		err = ledgerhttp.Invalid("the item must not be empty")
	}
	in.customer = r.PathValue("customer")
	return in, err
}

func create(ctx context.Context, tx *sql.Tx, in request) (reprise.Result, error) {
	order, err := orders.Insert(ctx, tx, in.customer, in.Item)
	if err != nil {
		return reprise.Result{}, err
	}
	result, err := ledgerhttp.JSON(http.StatusCreated, order)
	if err != nil {
		return reprise.Result{}, err
	}
	result.Reference = fmt.Sprintf("/customers/%s/orders/%d", order.Customer, order.ID)
	result.Header["Location"] = []string{result.Reference}
	return result, nil
}
