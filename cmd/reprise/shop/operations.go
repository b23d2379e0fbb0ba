// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
)

// The operations of the shop. Their names are stored in the ledger with each
// key and must not change while keys are remembered.
const (
	opCreateOrder  reprise.Operation = "create-order"
	opGetOrder     reprise.Operation = "get-order"
	opListOrders   reprise.Operation = "list-orders"
	opChangeOrder  reprise.Operation = "change-order"
	opCancelOrder  reprise.Operation = "cancel-order"
	opPayOrder     reprise.Operation = "pay-order"
	opGetPayment   reprise.Operation = "get-payment"
	opListPayments reprise.Operation = "list-payments"
	opCreateCoupon reprise.Operation = "create-coupon"
	opRedeemCoupon reprise.Operation = "redeem-coupon"
	opGetContract  reprise.Operation = "get-contract"
)

// promises declares what each endpoint promises about being called again. It is
// served at contract.Path, and it is what the handlers are made from.
func promises(c Config) (*contract.Contract, error) {
	keyed := func(name reprise.Operation, path string, effects ...contract.Effect) contract.Operation {
		return contract.Operation{
			Name: name, Method: http.MethodPost, Path: path,
			Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
			Retention: c.Retention, Tombstone: c.Tombstone, Wait: c.Wait, Effects: effects,
		}
	}
	versioned := func(name reprise.Operation, method, path string, effects ...contract.Effect) contract.Operation {
		op := keyed(name, path, effects...)
		op.Method, op.Safety, op.Key = method, contract.Idempotent, contract.KeyOptional
		op.Precondition = contract.IfMatch
		return op
	}
	staged := func(op contract.Operation) contract.Operation {
		op.Mode = contract.Staged
		return op
	}
	safe := func(name reprise.Operation, path string) contract.Operation {
		return contract.Operation{Name: name, Method: http.MethodGet, Path: path, Safety: contract.Safe}
	}
	charge := contract.Effect{Name: "charge", By: contract.ByDownstreamKey}

	return contract.New(
		keyed(opCreateOrder, "/orders", event(orderCreated)),
		safe(opListOrders, "/orders"),
		safe(opGetOrder, "/orders/{id}"),
		versioned(opChangeOrder, http.MethodPut, "/orders/{id}", event(orderUpdated)),
		versioned(opCancelOrder, http.MethodDelete, "/orders/{id}", event(orderCancelled)),
		staged(keyed(opPayOrder, "/orders/{id}/payments", charge, event(paymentCaptured))),
		safe(opListPayments, "/payments"),
		safe(opGetPayment, "/payments/{id}"),
		keyed(opCreateCoupon, "/coupons"),
		keyed(opRedeemCoupon, "/coupons/{code}/redemptions", event(couponRedeemed)),
		safe(opGetContract, contract.Path),
	)
}

// event is the effect of an event that leaves through the outbox.
func event(name string) contract.Effect { return contract.Effect{Name: name, By: contract.ByOutbox} }
