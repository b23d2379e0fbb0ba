// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// listing is what a list was asked for.
type listing struct {
	caller reprise.Caller
	path   string
	// filter is the name of the one parameter that chooses, and value what it
	// chooses; empty for all.
	filter, value string
	// after is the id of the item to continue after; empty for the start.
	after string
	limit int
}

// list is the content of an answer. Next is the address of what follows, or null.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// readListing reads the query of a list: filter, after and limit, each at most
// once, and nothing else.
func readListing(u *url.URL, filter string) (listing, error) {
	l := listing{path: u.Path, filter: filter, limit: defaultLimit}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, ledgerhttp.Invalid("the query can't be read")
	}
	for name, values := range query {
		if len(values) > 1 || values[0] == "" || !isText(values[0]) {
			return l, ledgerhttp.Invalid("the query parameter %q must be given once, with a text", name)
		}
		switch name {
		case filter:
			l.value = values[0]
		case "after":
			l.after = values[0]
		case "limit":
			l.limit, err = strconv.Atoi(values[0])
			if err != nil || l.limit < 1 || l.limit > maxLimit {
				return l, ledgerhttp.Invalid("limit must be a whole number from 1 to %d", maxLimit)
			}
		default:
			return l, ledgerhttp.Invalid("there is no query parameter %q", name)
		}
	}
	return l, nil
}

// readRefListing reads the query of a list that is chosen from by reference.
func readRefListing(r *ledgerhttp.Request) (listing, error) {
	l, err := readListing(r.URL, "ref")
	l.caller = r.Caller
	return l, err
}

// page cuts found, which was asked for with one more than the limit, to the
// limit, and finds the address of what follows. id is how the next page says
// where this one ended.
func page[T any](l listing, found []T, id func(T) string) list[T] {
	if len(found) <= l.limit {
		return list[T]{Items: found}
	}
	found = found[:l.limit]
	query := url.Values{"after": {id(found[l.limit-1])}, "limit": {strconv.Itoa(l.limit)}}
	if l.value != "" {
		query.Set(l.filter, l.value)
	}
	next := l.path + "?" + query.Encode()
	return list[T]{Items: found, Next: &next}
}

// answerList answers one page of the caller's rows of a table, oldest first: in the
// order of their numbers, which are given out in the order of the writes. On a
// database server a row may become visible after one with a later number, so a
// walk through pages that goes on while somebody writes may pass it by.
func answerList[T any](ctx context.Context, s *Shop, l listing, table, columns string, id func(T) string,
	scan func(func(...any) error) (T, error),
) (reprise.Result, error) {
	var after int64
	if l.after != "" {
		err := s.db.QueryRowContext(ctx, s.sql(`SELECT seq FROM `+table+` WHERE id = ? AND caller = ?`), l.after, l.caller).Scan(&after)
		if errors.Is(err, sql.ErrNoRows) {
			err = ledgerhttp.Invalid("after is not the id of an item of this list")
		}
		if err != nil {
			return reprise.Result{}, err
		}
	}
	query, args := `SELECT `+columns+` FROM `+table+` WHERE caller = ? AND seq > ?`, []any{l.caller, after}
	if l.value != "" {
		query, args = query+` AND ref = ?`, append(args, l.value)
	}
	rows, err := s.db.QueryContext(ctx, s.sql(query+` ORDER BY seq LIMIT ?`), append(args, l.limit+1)...)
	if err != nil {
		return reprise.Result{}, err
	}
	defer func() { _ = rows.Close() }()
	found := []T{}
	for rows.Next() {
		item, err := scan(rows.Scan)
		if err != nil {
			return reprise.Result{}, err
		}
		found = append(found, item)
	}
	if err := rows.Err(); err != nil {
		return reprise.Result{}, err
	}
	return ledgerhttp.JSON(http.StatusOK, page(l, found, id))
}

// byID is what a single resource was asked for by.
type byID struct {
	caller reprise.Caller
	id     string
}

func readByID(r *ledgerhttp.Request) (byID, error) {
	return byID{caller: r.Caller, id: r.PathValue("id")}, noQuery(r)
}
