// SPDX-License-Identifier: Apache-2.0

package psp

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// list answers one page of charges, oldest first, with a link to the next one.
func (p *Provider) list(w http.ResponseWriter, r *http.Request) {
	asked, err := readPage(r.URL.RawQuery)
	if err != nil {
		invalid(w, err)
		return
	}
	look := asked
	look.limit++ // one more tells whether there is a next page
	found, err := p.book.charges(r.Context(), look)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		invalid(w, errors.New("after is not the id of a charge"))
		return
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, reprise.CodeStoreUnavailable, "the charges can't be read now")
		return
	}
	body := struct {
		Items []Charge `json:"items"`
		Next  *string  `json:"next"`
	}{Items: found}
	if len(found) > asked.limit {
		body.Items = found[:asked.limit]
		q := url.Values{"after": {found[asked.limit-1].ID}, "limit": {strconv.Itoa(asked.limit)}}
		if asked.reference != "" {
			q.Set("reference", asked.reference)
		}
		next := "/charges?" + q.Encode()
		body.Next = &next
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// readPage reads a query of reference, after and limit, each at most once.
func readPage(rawQuery string) (page, error) {
	p := page{limit: defaultLimit}
	q, err := url.ParseQuery(rawQuery)
	if err != nil {
		return p, errors.New("the query can't be read")
	}
	for name, values := range q {
		if len(values) != 1 || values[0] == "" {
			return p, fmt.Errorf("the query parameter %q must be given once, with a value", name)
		}
		switch name {
		case "reference":
			p.reference = values[0]
		case "after":
			p.after = values[0]
		case "limit":
			p.limit, err = strconv.Atoi(values[0])
			if err != nil || p.limit < 1 || p.limit > maxLimit {
				return p, fmt.Errorf("limit must be between 1 and %d", maxLimit)
			}
		default:
			return p, fmt.Errorf("there is no query parameter %q", name)
		}
	}
	return p, nil
}

// settlement answers every charge as CSV, as a provider's daily report does. It
// is read page by page, so that a long one does not keep charges waiting.
func (p *Provider) settlement(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	out := csv.NewWriter(w)
	_ = out.Write([]string{"id", "reference", "amount", "currency", "status", "created_at"})
	asked := page{limit: maxLimit}
	for {
		found, err := p.book.charges(r.Context(), asked)
		if err != nil {
			// The header is out: only a broken connection says that the file is not
			// complete.
			panic(http.ErrAbortHandler)
		}
		for _, c := range found {
			_ = out.Write([]string{
				c.ID, c.Reference, strconv.FormatInt(c.Amount, 10), c.Currency, c.Status,
				c.CreatedAt.Format(createdAt),
			})
		}
		out.Flush()
		if len(found) < maxLimit {
			return
		}
		asked.after = found[len(found)-1].ID
	}
}

func invalid(w http.ResponseWriter, err error) {
	wire.ProblemOf(&reprise.Error{Code: reprise.CodeInvalid, Outcome: reprise.NotProcessed, Detail: err.Error()}).Write(w)
}
