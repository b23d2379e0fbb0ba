// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/serve"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/wire"
)

// api is what callers may do. Method and path of each endpoint are those of the
// contract, so the two can't come apart.
func (s *Shop) api() http.Handler {
	a := api{shop: s, mux: http.NewServeMux()}
	write(a, opCreateOrder, readNewOrder, s.createOrder)
	write(a, opChangeOrder, readOrderChange, s.changeOrder)
	write(a, opCancelOrder, readOrderCancellation, s.cancelOrder)
	read(a, opGetOrder, readByID, s.getOrder)
	read(a, opListOrders, readRefListing, s.listOrders)

	a.handle(opPayOrder, ledgerhttp.Staged(s.server, named(readNewPayment), s.payments, encodeNewPayment))
	read(a, opGetPayment, readByID, s.getPayment)
	read(a, opListPayments, readRefListing, s.listPayments)

	write(a, opCreateCoupon, readNewCoupon, s.createCoupon)
	write(a, opRedeemCoupon, readNewRedemption, s.redeemCoupon)

	a.handle(opGetContract, withoutQuery(ledgerhttp.ContractHandler(s.contract)))
	return serve.Problems(a.mux)
}

// withoutQuery refuses query parameters, as noQuery does where a request is decoded.
func withoutQuery(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := noQuery(&ledgerhttp.Request{Request: r}); err != nil {
			wire.ProblemOf(err).Write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// api is the contract on its way to becoming routes.
type api struct {
	shop *Shop
	mux  *http.ServeMux
}

func (a api) handle(name reprise.Operation, h http.Handler) {
	op, _ := a.shop.contract.Operation(name)
	a.mux.Handle(op.Pattern(), a.shop.metrics.operation(name, h))
}

// write serves an operation that is one transaction.
func write[In any](a api, op reprise.Operation, decode func(*ledgerhttp.Request) (In, error),
	work func(context.Context, *sql.Tx, In) (reprise.Result, error),
) {
	a.handle(op, ledgerhttp.Atomic(a.shop.server, op, named(decode), work))
}

// read serves an operation that changes nothing.
func read[In any](a api, op reprise.Operation, decode func(*ledgerhttp.Request) (In, error),
	look func(context.Context, In) (reprise.Result, error),
) {
	a.handle(op, ledgerhttp.Safe(a.shop.server, op, named(decode), look))
}

// named refuses a path that is no text before anything is looked for under that
// name: what a database says to a byte that no text has is its own affair.
func named[In any](decode func(*ledgerhttp.Request) (In, error)) func(*ledgerhttp.Request) (In, error) {
	return func(r *ledgerhttp.Request) (in In, err error) {
		if !isText(r.URL.Path) {
			return in, notFound("resource")
		}
		return decode(r)
	}
}
