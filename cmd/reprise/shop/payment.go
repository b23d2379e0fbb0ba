// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
)

// The states of a payment.
const (
	statusPending  = "pending"
	statusCaptured = "captured"
	statusDeclined = "declined"
)

// paymentCaptured is the event of a payment.
const paymentCaptured = "payment.captured"

// payment is one attempt to have an order paid. It charges exactly the order's
// amount. At most one payment of an order is pending or captured.
type payment struct {
	ID       string `json:"id"`
	OrderID  string `json:"order_id"`
	Ref      string `json:"ref"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
	// PSPReference is the provider's name for the charge.
	PSPReference string `json:"psp_reference"`

	caller reprise.Caller
}

func (p payment) path() string { return "/payments/" + p.ID }

// newPayment is what a payment is made from. The run is started with it, and
// taken up with it again after a crash, so it holds all that the run needs.
//
// The id is derived from the intent and the order. The provider is sent it, so a
// shop that has lost the payment, with its database or by going back to an older
// copy, sends the provider the same key and bytes when the caller comes again, and
// is told of the charge that is there. The order is part of it because a key that
// was purged may be used for another one, which is another charge.
type newPayment struct {
	ID     string         `json:"id"`
	Caller reprise.Caller `json:"caller"`
	Order  string         `json:"order"`
	Ref    string         `json:"ref"`
	Source string         `json:"source"`
}

func readNewPayment(r *ledgerhttp.Request) (newPayment, error) {
	body, err := ledgerhttp.DecodeJSON[struct {
		Ref    string `json:"ref"`
		Source string `json:"source"`
	}](r)
	if err == nil && body.Source == "" {
		err = ledgerhttp.Invalid("source must be a text that is not empty")
	}
	in := newPayment{Caller: r.Caller, Order: r.PathValue("id"), Ref: body.Ref, Source: body.Source}
	in.ID = derivedID("pay", reprise.Intent{Caller: r.Caller, Operation: opPayOrder, Key: r.Key}.Derive("payment "+in.Order))
	return in, cmp.Or(err, noQuery(r), text("ref", in.Ref))
}

func encodeNewPayment(in newPayment) ([]byte, error) { return json.Marshal(in) }

// pay has an order paid. It calls another system, so it can't be one
// transaction: it is a run of three steps, each of which is on record before the
// next one begins.
//
//  1. open: the order is found payable, and the payment is there as pending,
//     which keeps everybody else from changing or paying the order.
//  2. charge: the provider is called, under a key that is derived from the
//     caller's and therefore the same however often this is tried.
//  3. the end: the payment is captured or declined, the order is paid, the event
//     is sent and the answer is stored, all or nothing.
//
// Wherever it stops, the caller's next attempt or the recovery of any process
// goes on from there, with the same key and the same bytes.
func (s *Shop) pay(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
	var in newPayment
	if err := json.Unmarshal(run.Input(), &in); err != nil {
		return err
	}
	err := run.Tx(ctx, "open", func(ctx context.Context, tx *sql.Tx) error { return s.openPayment(ctx, tx, in) })
	if no, ok := errors.AsType[decision](err); ok {
		_, err := run.Finish(ctx, func(context.Context, *sql.Tx) (reprise.Result, error) { return no.result, nil })
		return err
	}
	if err != nil {
		return err
	}
	p, err := s.findPayment(ctx, in.Caller, in.ID)
	if err != nil {
		return err
	}
	request, err := json.Marshal(chargeRequest{Reference: p.ID, Amount: p.Amount, Currency: p.Currency, Source: in.Source})
	if err != nil {
		return err
	}
	// As the payment's id, the key that is derived from this name has the order in
	// it: see newPayment.
	response, err := run.Call(ctx, "charge "+p.OrderID, request, s.provider.charge)
	if err != nil {
		return err
	}
	var charged chargeAnswer
	if err := json.Unmarshal(response, &charged); err != nil {
		return err
	}
	_, err = run.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		p.Status, p.PSPReference = charged.Status, charged.ID
		return s.closePayment(ctx, tx, p)
	})
	return err
}

// openPayment writes the payment as pending, if the order can be paid.
//
// A payment of this id that is there already was declined, or the order would not
// be changeable, and its key has been forgotten since. It is the same payment and
// the decision on it stands: the provider is not asked again, who would refuse the
// key if the order's amount had been changed in the meantime.
func (s *Shop) openPayment(ctx context.Context, tx *sql.Tx, in newPayment) error {
	o, err := s.lockOrder(ctx, tx, in.Caller, in.Order)
	if err != nil {
		return err
	}
	if err := s.changeable(ctx, tx, o); err != nil {
		return err
	}
	var declined bool
	err = tx.QueryRowContext(ctx, s.sql(`SELECT EXISTS (SELECT 1 FROM payments WHERE id = ?)`), in.ID).Scan(&declined)
	if err != nil {
		return err
	}
	if declined {
		return decision{declinedResult(payment{ID: in.ID})}
	}
	_, err = tx.ExecContext(ctx, s.sql(
		`INSERT INTO payments (id, order_id, caller, ref, amount, currency, status) VALUES (?, ?, ?, ?, ?, ?, ?)`),
		in.ID, o.ID, in.Caller, in.Ref, o.Amount, o.Currency, statusPending)
	return err
}

// closePayment writes what the provider has decided, and what follows from it. A
// declined payment leaves the order free to be paid under another key.
func (s *Shop) closePayment(ctx context.Context, tx *sql.Tx, p payment) (reprise.Result, error) {
	_, err := tx.ExecContext(ctx, s.sql(`UPDATE payments SET status = ?, psp_reference = ? WHERE id = ?`),
		p.Status, p.PSPReference, p.ID)
	if err != nil {
		return reprise.Result{}, err
	}
	if p.Status == statusDeclined {
		return declinedResult(p), nil
	}
	_, err = tx.ExecContext(ctx, s.sql(`UPDATE orders SET status = ?, version = version + 1 WHERE id = ?`),
		statusPaid, p.OrderID)
	if err != nil {
		return reprise.Result{}, err
	}
	if err := s.emit(ctx, tx, paymentCaptured, order{ID: p.OrderID}.path(), fact{Caller: p.caller, Ref: p.Ref, Payment: &p}); err != nil {
		return reprise.Result{}, err
	}
	res, err := ledgerhttp.JSON(http.StatusCreated, p)
	if err != nil {
		return res, err
	}
	res.Header["Location"] = []string{p.path()}
	res.Reference = p.path()
	return res, nil
}

func declinedResult(p payment) reprise.Result {
	res := ledgerhttp.ProblemResult(http.StatusPaymentRequired, codeDeclined, "the payment was declined")
	res.Reference = p.path()
	return res
}

const paymentColumns = `id, order_id, ref, amount, currency, status, psp_reference`

func scanPayment(scan func(...any) error) (payment, error) {
	var p payment
	err := scan(&p.ID, &p.OrderID, &p.Ref, &p.Amount, &p.Currency, &p.Status, &p.PSPReference)
	return p, err
}

func (s *Shop) findPayment(ctx context.Context, caller reprise.Caller, id string) (payment, error) {
	row := s.db.QueryRowContext(ctx, s.sql(`SELECT `+paymentColumns+` FROM payments WHERE id = ? AND caller = ?`), id, caller)
	p, err := scanPayment(row.Scan)
	p.caller = caller
	if errors.Is(err, sql.ErrNoRows) {
		err = notFound("payment")
	}
	return p, err
}

func (s *Shop) getPayment(ctx context.Context, in byID) (reprise.Result, error) {
	p, err := s.findPayment(ctx, in.caller, in.id)
	if err != nil {
		return reprise.Result{}, err
	}
	return ledgerhttp.JSON(http.StatusOK, p)
}

func (s *Shop) listPayments(ctx context.Context, l listing) (reprise.Result, error) {
	return answerList(ctx, s, l, "payments", paymentColumns, func(p payment) string { return p.ID }, scanPayment)
}
