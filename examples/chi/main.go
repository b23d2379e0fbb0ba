// SPDX-License-Identifier: Apache-2.0

// Chi serves orders with github.com/go-chi/chi: the middleware goes on the one
// route with With.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/reprise-go/reprise/examples/orders"
	"github.com/reprise-go/reprise/ledgerhttp"
)

func main() { log.Fatal(orders.Main(routes)) }

func routes(server *ledgerhttp.Server[*sql.Tx]) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer, middleware.Compress(5))
	r.With(server.Middleware(orders.Create)).Post(orders.Path, create)
	return r
}

func create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Item string `json:"item"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Item == "" {
		http.Error(w, "an order has an item", http.StatusBadRequest)
		return
	}
	tx, _ := ledgerhttp.Tx[*sql.Tx](r.Context())
	order, err := orders.Insert(r.Context(), tx, chi.URLParam(r, "customer"), in.Item)
	if err != nil {
		http.Error(w, "no order was made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/customers/%s/orders/%d", order.Customer, order.ID))
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(order)
}
