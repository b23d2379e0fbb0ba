// SPDX-License-Identifier: Apache-2.0

package psp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/wire"
)

// The states of a charge.
const (
	Captured = "captured"
	Declined = "declined"
)

// maxBody is the largest charge request, in bytes.
const maxBody = 8 << 20

// Charge is one charge that was decided.
type Charge struct {
	ID string `json:"id"`
	// Reference is the merchant's own name for what is paid.
	Reference string `json:"reference"`
	// Amount is in minor units.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	// Status is Captured or Declined.
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
}

// createdAt has as many digits for every moment, so that its texts are in order.
const createdAt = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON implements json.Marshaler.
func (c Charge) MarshalJSON() ([]byte, error) {
	type plain Charge
	return json.Marshal(struct {
		plain
		CreatedAt string `json:"created_at"`
	}{plain(c), c.CreatedAt.Format(createdAt)})
}

// chargeRequest is the body of POST /charges. The fields are what a repeat of
// the key is compared by.
type chargeRequest struct {
	Reference string             `json:"reference"`
	Amount    ledgerhttp.Integer `json:"amount"`
	Currency  string             `json:"currency"`
	Source    string             `json:"source"`
}

func (q chargeRequest) check() error {
	switch {
	case q.Reference == "":
		return errors.New("the charge has no reference")
	case q.Amount < 1:
		return errors.New("amount must be an integer in minor units, 1 or more")
	case q.Currency == "":
		return errors.New("the charge has no currency")
	case q.Source == "":
		return errors.New("the charge has no source")
	}
	return nil
}

func (p *Provider) charge(w http.ResponseWriter, r *http.Request) {
	key, err := wire.ReadKey(r.Header)
	if err != nil {
		wire.ProblemOf(err).Write(w)
		return
	}
	q, err := readCharge(w, r)
	if err != nil {
		invalid(w, err)
		return
	}
	fault := p.faults.take()
	if p.before(fault, w, r) {
		return
	}
	leave, ok := p.desk.enter(key)
	if !ok {
		inFlight(w)
		return
	}
	c, replayed, err := p.decide(context.WithoutCancel(r.Context()), key, q)
	leave()
	if p.after(fault, w, r) {
		return
	}
	switch {
	case errors.Is(err, errOtherParameters):
		refuse(w, http.StatusBadRequest, reprise.CodeKeyReused,
			"this key has made a charge with other parameters")
	case err != nil:
		refuse(w, http.StatusInternalServerError, reprise.CodeInternal, "the charge could not be recorded")
	default:
		answer(w, c, replayed)
	}
}

// decide makes the charge, or finds the one that the key has made. ctx must not
// end with the client's connection: once a provider has a request, it acts.
func (p *Provider) decide(ctx context.Context, key reprise.Key, q chargeRequest) (c Charge, replayed bool, err error) {
	if p.config.Latency > 0 {
		select {
		case <-time.After(p.config.Latency):
		case <-p.closing:
		}
	}
	status := Captured
	if int64(q.Amount) > p.config.DeclineOver {
		status = Declined
	}
	return p.book.charge(ctx, key, q, status, p.config.Now())
}

func answer(w http.ResponseWriter, c Charge, replayed bool) {
	w.Header().Set("Content-Type", "application/json")
	if replayed {
		w.Header().Set(wire.HeaderReplayed, "true")
	}
	if c.Status == Declined {
		w.WriteHeader(http.StatusPaymentRequired)
	}
	_ = json.NewEncoder(w).Encode(c)
}

// readCharge reads the body of a charge. The error says what is wrong with it.
func readCharge(w http.ResponseWriter, r *http.Request) (chargeRequest, error) {
	var q chargeRequest
	if err := readJSON(w, r, &q); err != nil {
		return q, err
	}
	return q, q.check()
}

// readJSON reads exactly one JSON value with no unknown member into v.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	if t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); t != "application/json" {
		return errors.New("the content type must be application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New("the body is not the JSON object that was expected")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// refuse answers with a problem document. What the answer says of the charge is
// nothing: a real provider's errors don't either.
func refuse(w http.ResponseWriter, status int, code reprise.Code, detail string) {
	wire.ProblemOf(&reprise.Error{Code: code, Status: status, Detail: detail}).Write(w)
}

func inFlight(w http.ResponseWriter) {
	refuse(w, http.StatusConflict, reprise.CodeInProgress, "a request with this key is at work")
}
