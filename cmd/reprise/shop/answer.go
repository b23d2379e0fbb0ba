// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"errors"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
)

// The shop's own problem codes, beside those of the protocol.
const (
	codeNotFound          reprise.Code = "not-found"
	codeDeclined          reprise.Code = "declined"
	codeOrderPaid         reprise.Code = "order-paid"
	codeOrderCancelled    reprise.Code = "order-cancelled"
	codePaymentInProgress reprise.Code = "payment-in-progress"
	codeCouponExists      reprise.Code = "coupon-exists"
	codeCouponExhausted   reprise.Code = "coupon-exhausted"
)

// A decision is a "no" that stands: it is stored and answers every repeat. The
// other kind of "no", ledgerhttp.Refuse, may be otherwise next time and is not
// stored.
type decision struct{ result reprise.Result }

func (d decision) Error() string { return http.StatusText(d.result.Status) }

func decide(status int, code reprise.Code, detail string) error {
	return decision{ledgerhttp.ProblemResult(status, code, detail)}
}

// decided returns the result of a decision, and any other error as it is.
func decided(err error) (reprise.Result, error) {
	if d, ok := errors.AsType[decision](err); ok {
		return d.result, nil
	}
	return reprise.Result{}, err
}

func notFound(what string) error {
	return ledgerhttp.Refuse(http.StatusNotFound, codeNotFound, "there is no such "+what)
}
