// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"cmp"
	"context"
	"database/sql"
	"net/http"
	"net/url"
	"strings"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
)

// couponRedeemed is the event of a coupon.
const couponRedeemed = "coupon.redeemed"

// coupon can be redeemed Stock times, by the caller that made it.
type coupon struct {
	Code  string `json:"code"`
	Stock int64  `json:"stock"`
}

func (c coupon) path() string { return "/coupons/" + url.PathEscape(c.Code) }

// redemption is one use of a coupon.
type redemption struct {
	ID   string `json:"id"`
	Code string `json:"code"`
	Ref  string `json:"ref"`
}

func (r redemption) path() string { return coupon{Code: r.Code}.path() + "/redemptions/" + r.ID }

type newCoupon struct {
	Code string `json:"code"`
	// Stock is nil if it is missing: a coupon of no use must be asked for.
	Stock *ledgerhttp.Integer `json:"stock"`

	caller reprise.Caller
}

func readNewCoupon(r *ledgerhttp.Request) (newCoupon, error) {
	in, err := ledgerhttp.DecodeJSON[newCoupon](r)
	if err == nil && (in.Stock == nil || *in.Stock < 0) {
		err = ledgerhttp.Invalid("stock must be a whole number of at least 0")
	}
	in.caller = r.Caller
	return in, cmp.Or(err, noQuery(r), text("code", in.Code), pathSegment("code", in.Code))
}

// pathSegment refuses what could not stand between two slashes of a path.
func pathSegment(name, v string) error {
	if v == "." || v == ".." || strings.Contains(v, "/") {
		return ledgerhttp.Invalid("%s must be neither . nor .. and have no slash", name)
	}
	return nil
}

// createCoupon makes a coupon. That the caller has one of this code already is a
// decision: the key that asked is answered with it from then on.
func (s *Shop) createCoupon(ctx context.Context, tx *sql.Tx, in newCoupon) (reprise.Result, error) {
	c := coupon{Code: in.Code, Stock: int64(*in.Stock)}
	made, err := tx.ExecContext(ctx, s.dialect.insertUnlessThere(`coupons (caller, code, stock) VALUES (?, ?, ?)`),
		in.caller, c.Code, c.Stock)
	if err != nil {
		return reprise.Result{}, err
	}
	if n, err := made.RowsAffected(); err != nil || n == 0 {
		return ledgerhttp.ProblemResult(http.StatusConflict, codeCouponExists, "there is a coupon of this code"), err
	}
	res, err := ledgerhttp.JSON(http.StatusCreated, c)
	res.Reference = c.path()
	return res, err
}

type newRedemption struct {
	Ref string `json:"ref"`

	caller reprise.Caller
	code   string
}

func readNewRedemption(r *ledgerhttp.Request) (newRedemption, error) {
	in, err := ledgerhttp.DecodeJSON[newRedemption](r)
	in.caller, in.code = r.Caller, r.PathValue("code")
	return in, cmp.Or(err, noQuery(r), text("ref", in.Ref))
}

// redeemCoupon takes one of the stock. The last one goes to one caller only,
// because the statement that finds it there is the one that takes it: a look
// before it could be out of date by the time of the write.
func (s *Shop) redeemCoupon(ctx context.Context, tx *sql.Tx, in newRedemption) (reprise.Result, error) {
	taken, err := tx.ExecContext(ctx, s.sql(`UPDATE coupons SET used = used + 1 WHERE caller = ? AND code = ? AND used < stock`),
		in.caller, in.code)
	if err != nil {
		return reprise.Result{}, err
	}
	if n, err := taken.RowsAffected(); err != nil {
		return reprise.Result{}, err
	} else if n == 0 {
		return s.noneLeft(ctx, tx, in)
	}
	r := redemption{ID: newID("red"), Code: in.code, Ref: in.Ref}
	_, err = tx.ExecContext(ctx, s.sql(`INSERT INTO redemptions (id, coupon, caller, ref)
		SELECT ?, seq, caller, ? FROM coupons WHERE caller = ? AND code = ?`),
		r.ID, r.Ref, in.caller, in.code)
	if err != nil {
		return reprise.Result{}, err
	}
	if err := s.emit(ctx, tx, couponRedeemed, "", fact{Caller: in.caller, Ref: r.Ref, Redemption: &r}); err != nil {
		return reprise.Result{}, err
	}
	res, err := ledgerhttp.JSON(http.StatusCreated, r)
	res.Reference = r.path()
	return res, err
}

// noneLeft says why nothing could be taken. It can't change back: coupons are
// neither deleted nor filled up.
func (s *Shop) noneLeft(ctx context.Context, tx *sql.Tx, in newRedemption) (reprise.Result, error) {
	var there bool
	err := tx.QueryRowContext(ctx, s.sql(`SELECT EXISTS (SELECT 1 FROM coupons WHERE caller = ? AND code = ?)`),
		in.caller, in.code).Scan(&there)
	if err != nil {
		return reprise.Result{}, err
	}
	if !there {
		return reprise.Result{}, notFound("coupon")
	}
	return ledgerhttp.ProblemResult(http.StatusConflict, codeCouponExhausted, "the coupon is used up"), nil
}
