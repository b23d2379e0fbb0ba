// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/wire"
)

// The states of an order.
const (
	statusOpen      = "open"
	statusPaid      = "paid"
	statusCancelled = "cancelled"
)

// The events of an order.
const (
	orderCreated   = "order.created"
	orderUpdated   = "order.updated"
	orderCancelled = "order.cancelled"
)

// order is what a caller has ordered. Amounts are in minor units, for the whole
// order and not for each piece.
type order struct {
	ID        string `json:"id"`
	Ref       string `json:"ref"`
	SKU       string `json:"sku"`
	Quantity  int64  `json:"quantity"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"`
	Version   int64  `json:"version"`
	CreatedAt moment `json:"created_at"`

	caller reprise.Caller
}

func (o order) path() string { return "/orders/" + o.ID }

// etag is strong, because the version changes with every byte of an order.
func (o order) etag() string { return wire.ETag(strconv.FormatInt(o.Version, 10)) }

// answer is the order as the result of an operation on it.
func (o order) answer(status int) (reprise.Result, error) {
	res, err := ledgerhttp.JSON(status, o)
	if err != nil {
		return res, err
	}
	res.Reference = o.path()
	res.Header["ETag"] = []string{o.etag()}
	if status == http.StatusCreated {
		res.Header["Location"] = []string{o.path()}
	}
	return res, nil
}

type newOrder struct {
	Ref      string             `json:"ref"`
	SKU      string             `json:"sku"`
	Quantity ledgerhttp.Integer `json:"quantity"`
	Amount   ledgerhttp.Integer `json:"amount"`
	Currency string             `json:"currency"`

	caller reprise.Caller
	id     string
}

func readNewOrder(r *ledgerhttp.Request) (newOrder, error) {
	in, err := ledgerhttp.DecodeJSON[newOrder](r)
	in.caller = r.Caller
	in.id = derivedID("ord", reprise.Intent{Caller: r.Caller, Operation: opCreateOrder, Key: r.Key}.Derive("order"))
	return in, cmp.Or(err, noQuery(r),
		text("ref", in.Ref), text("sku", in.SKU), positive("quantity", in.Quantity),
		positive("amount", in.Amount), currency(in.Currency))
}

// createOrder writes the order and its event. Whether it has done so before is
// not its concern: the ledger asks it once.
func (s *Shop) createOrder(ctx context.Context, tx *sql.Tx, in newOrder) (reprise.Result, error) {
	id, err := s.freeOrderID(ctx, tx, in.id)
	if err != nil {
		return reprise.Result{}, err
	}
	o := order{
		ID: id, Ref: in.Ref, SKU: in.SKU, Quantity: int64(in.Quantity), Amount: int64(in.Amount),
		Currency: in.Currency, Status: statusOpen, Version: 1, CreatedAt: now(), caller: in.caller,
	}
	_, err = tx.ExecContext(ctx, s.sql(
		`INSERT INTO orders (id, caller, ref, sku, quantity, amount, currency, status, version, created_at)
		 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`),
		o.ID, o.caller, o.Ref, o.SKU, o.Quantity, o.Amount, o.Currency, o.Status, o.Version, o.CreatedAt.UnixMilli())
	if err != nil {
		return reprise.Result{}, err
	}
	if err := s.emitOrder(ctx, tx, orderCreated, o); err != nil {
		return reprise.Result{}, err
	}
	return o.answer(http.StatusCreated)
}

// freeOrderID returns derived, unless there is an order of that name: then its key
// was forgotten after its time and stands for a new intent now. It is looked up,
// because a statement that fails would spoil the transaction.
func (s *Shop) freeOrderID(ctx context.Context, tx *sql.Tx, derived string) (string, error) {
	var taken bool
	err := tx.QueryRowContext(ctx, s.sql(`SELECT EXISTS (SELECT 1 FROM orders WHERE id = ?)`), derived).Scan(&taken)
	if taken {
		return newID("ord"), err
	}
	return derived, err
}

type orderChange struct {
	Quantity ledgerhttp.Integer `json:"quantity"`
	Amount   ledgerhttp.Integer `json:"amount"`

	caller  reprise.Caller
	id      string
	request *http.Request
}

func readOrderChange(r *ledgerhttp.Request) (orderChange, error) {
	in, err := ledgerhttp.DecodeJSON[orderChange](r)
	in.caller, in.id, in.request = r.Caller, r.PathValue("id"), r.Request
	return in, cmp.Or(err, noQuery(r), positive("quantity", in.Quantity), positive("amount", in.Amount))
}

// changeOrder writes a new version of an order, if the caller has seen the
// present one. A key says "this is the same change", If-Match says "nobody has
// changed it since": they answer different questions, and both are asked.
func (s *Shop) changeOrder(ctx context.Context, tx *sql.Tx, in orderChange) (reprise.Result, error) {
	o, err := s.lockOrder(ctx, tx, in.caller, in.id)
	if err != nil {
		return reprise.Result{}, err
	}
	if err := s.changeable(ctx, tx, o); err != nil {
		return decided(err)
	}
	if err := ledgerhttp.CheckIfMatch(in.request, o.etag()); err != nil {
		return reprise.Result{}, err
	}
	o.Quantity, o.Amount = int64(in.Quantity), int64(in.Amount)
	return s.saveOrder(ctx, tx, orderUpdated, o)
}

type orderCancellation struct {
	caller  reprise.Caller
	id      string
	request *http.Request
}

func readOrderCancellation(r *ledgerhttp.Request) (orderCancellation, error) {
	return orderCancellation{caller: r.Caller, id: r.PathValue("id"), request: r.Request},
		cmp.Or(noQuery(r), noBody(r))
}

// cancelOrder cancels an order. Cancelling it again changes nothing and makes no
// second event.
func (s *Shop) cancelOrder(ctx context.Context, tx *sql.Tx, in orderCancellation) (reprise.Result, error) {
	o, err := s.lockOrder(ctx, tx, in.caller, in.id)
	if err != nil {
		return reprise.Result{}, err
	}
	cancelled := o.Status == statusCancelled
	if err := s.changeable(ctx, tx, o); err != nil && !cancelled {
		return decided(err)
	}
	if err := ledgerhttp.CheckIfMatch(in.request, o.etag()); err != nil {
		return reprise.Result{}, err
	}
	if cancelled {
		return o.answer(http.StatusOK)
	}
	o.Status = statusCancelled
	return s.saveOrder(ctx, tx, orderCancelled, o)
}

// changeable reports why an order that is locked can't be changed or paid: with a decision if
// that stands for good, and with a refusal if it will pass.
//
// It is asked before the precondition, because a precondition is ignored where
// the answer would not be a success without it (RFC 9110 section 13.2.1).
func (s *Shop) changeable(ctx context.Context, tx *sql.Tx, o order) error {
	switch o.Status {
	case statusPaid:
		return decide(http.StatusConflict, codeOrderPaid, "the order is paid")
	case statusCancelled:
		return decide(http.StatusConflict, codeOrderCancelled, "the order is cancelled")
	}
	var pending bool
	err := tx.QueryRowContext(ctx, s.sql(`SELECT EXISTS (SELECT 1 FROM payments WHERE order_id = ? AND status = ?)`),
		o.ID, statusPending).Scan(&pending)
	if err == nil && pending {
		err = ledgerhttp.Refuse(http.StatusConflict, codePaymentInProgress, "a payment of this order is in progress")
	}
	return err
}

// saveOrder writes the next version of o and its event.
func (s *Shop) saveOrder(ctx context.Context, tx *sql.Tx, event string, o order) (reprise.Result, error) {
	o.Version++
	_, err := tx.ExecContext(ctx, s.sql(`UPDATE orders SET quantity = ?, amount = ?, status = ?, version = ? WHERE id = ?`),
		o.Quantity, o.Amount, o.Status, o.Version, o.ID)
	if err != nil {
		return reprise.Result{}, err
	}
	if err := s.emitOrder(ctx, tx, event, o); err != nil {
		return reprise.Result{}, err
	}
	return o.answer(http.StatusOK)
}

func (s *Shop) emitOrder(ctx context.Context, tx *sql.Tx, event string, o order) error {
	return s.emit(ctx, tx, event, o.path(), fact{Caller: o.caller, Ref: o.Ref, Order: &o})
}

const orderColumns = `id, ref, sku, quantity, amount, currency, status, version, created_at`

func scanOrder(scan func(...any) error) (order, error) {
	var o order
	var created int64
	err := scan(&o.ID, &o.Ref, &o.SKU, &o.Quantity, &o.Amount, &o.Currency, &o.Status, &o.Version, &created)
	o.CreatedAt = moment{time.UnixMilli(created).UTC()}
	return o, err
}

const orderQuery = `SELECT ` + orderColumns + ` FROM orders WHERE id = ? AND caller = ?`

// findOrder returns an order of the caller. That there is one of somebody else
// is nobody's business: it is not found either.
func (s *Shop) findOrder(ctx context.Context, caller reprise.Caller, id string) (order, error) {
	return foundOrder(caller, s.db.QueryRowContext(ctx, s.sql(orderQuery), id, caller))
}

// lockOrder is findOrder for those who decide by what they see: until the
// transaction ends, nobody else changes or pays the order.
func (s *Shop) lockOrder(ctx context.Context, tx *sql.Tx, caller reprise.Caller, id string) (order, error) {
	return foundOrder(caller, tx.QueryRowContext(ctx, s.sql(orderQuery+s.dialect.forUpdate), id, caller))
}

func foundOrder(caller reprise.Caller, row *sql.Row) (order, error) {
	o, err := scanOrder(row.Scan)
	o.caller = caller
	if errors.Is(err, sql.ErrNoRows) {
		err = notFound("order")
	}
	return o, err
}

func (s *Shop) getOrder(ctx context.Context, in byID) (reprise.Result, error) {
	o, err := s.findOrder(ctx, in.caller, in.id)
	if err != nil {
		return reprise.Result{}, err
	}
	return o.answer(http.StatusOK)
}

func (s *Shop) listOrders(ctx context.Context, l listing) (reprise.Result, error) {
	return answerList(ctx, s, l, "orders", orderColumns, func(o order) string { return o.ID }, scanOrder)
}
