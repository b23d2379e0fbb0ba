// SPDX-License-Identifier: Apache-2.0

// Package orderstest is the test that every example passes.
package orderstest

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/examples/orders"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store"
)

// Routes are what an example serves.
type Routes func(*ledgerhttp.Server[*sql.Tx]) http.Handler

// Run tests the routes of one example over real sockets, with a real database.
// What is asserted is always the number of rows.
func Run(t *testing.T, routes Routes) {
	t.Helper()
	t.Run("the same order twice is one row", func(t *testing.T) { testRepeat(t, routes) })
	t.Run("another order under the same key is refused", func(t *testing.T) {
		e := setup(t, routes)
		e.post(t, "key-1", `{"item":"book"}`)
		e.post(t, "key-1", `{"item":"pen"}`).want(t, http.StatusUnprocessableEntity)
		e.wantRows(t, 1)
	})
	t.Run("an error of the handler leaves nothing, and the key is free", func(t *testing.T) {
		e := setup(t, routes)
		for range 2 {
			e.post(t, "key-1", `{"item":"unicorn"}`).want(t, http.StatusInternalServerError)
		}
		e.wantRows(t, 0)
	})
	t.Run("an invalid order burns no key", func(t *testing.T) {
		e := setup(t, routes)
		e.post(t, "key-1", `{"item":""}`).want(t, http.StatusBadRequest)
		e.post(t, "key-1", `{"item":"book"}`).want(t, http.StatusCreated)
		e.wantRows(t, 1)
	})
	t.Run("a transaction that is run again leaves one row and the right answer", func(t *testing.T) {
		lost := 0
		e := setup(t, routes, func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return conflicts{d, &lost} })
		a := e.post(t, "key-1", `{"item":"book"}`)
		a.want(t, http.StatusCreated)
		if !strings.Contains(a.body, `"item":"book"`) {
			t.Errorf("got %+v", a)
		}
		if lost != 2 {
			t.Errorf("%d conflicts were lost, want 2", lost)
		}
		e.wantRows(t, 1)
	})
	t.Run("nobody is served without a name or a key", func(t *testing.T) {
		e := setup(t, routes)
		e.post(t, "", `{"item":"book"}`).want(t, http.StatusBadRequest)
		e.caller = ""
		e.post(t, "key-1", `{"item":"book"}`).want(t, http.StatusUnauthorized)
		e.wantRows(t, 0)
	})
}

func testRepeat(t *testing.T, routes Routes) {
	e := setup(t, routes)
	first := e.post(t, "key-1", `{"item":"book"}`)
	first.want(t, http.StatusCreated)
	if first.body != `{"id":1,"customer":"7","item":"book"}` || first.location != "/customers/7/orders/1" {
		t.Errorf("got %+v", first)
	}
	again := e.post(t, "key-1", `{ "item" : "book" }`)
	want := first
	want.replayed = true
	if again != want {
		t.Errorf("got %+v, want %+v", again, want)
	}
	e.wantRows(t, 1)
	e.post(t, "key-2", `{"item":"book"}`).want(t, http.StatusCreated)
	e.wantRows(t, 2)
}

type example struct {
	db     *sql.DB
	url    string
	caller string
}

func setup(t *testing.T, routes Routes, wrap ...func(store.Driver[*sql.Tx]) store.Driver[*sql.Tx]) *example {
	t.Helper()
	db, opened, err := orders.Open(t.Context(), filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(opened.Close(), db.Close()) })
	var driver store.Driver[*sql.Tx] = opened
	for _, w := range wrap {
		driver = w(driver)
	}
	server, err := orders.NewServer(driver)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(routes(server))
	t.Cleanup(s.Close)
	return &example{db: db, url: s.URL, caller: "ann"}
}

type answer struct {
	status         int
	body, location string
	replayed       bool
}

// want checks an answer that is no repeat.
func (a answer) want(t *testing.T, status int) {
	t.Helper()
	if a.status != status || a.replayed {
		t.Errorf("got %+v, want status %d and no repeat", a, status)
	}
}

func (e *example) post(t *testing.T, key, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/customers/7/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if e.caller != "" {
		req.Header.Set("Authorization", "Bearer "+e.caller)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{
		status: resp.StatusCode, body: strings.TrimSpace(string(b)), location: resp.Header.Get("Location"),
		replayed: resp.Header.Get("Idempotent-Replayed") == "true",
	}
}

func (e *example) wantRows(t *testing.T, want int) {
	t.Helper()
	var got int
	if err := e.db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%d orders, want %d", got, want)
	}
}

// conflicts makes the work of the first two attempts lose its transaction.
type conflicts struct {
	store.Driver[*sql.Tx]
	lost *int
}

var errLost = errors.New("lost")

// Execute implements store.Ledger.
func (d conflicts) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, *sql.Tx) (store.Completion, error),
) (store.Entry, bool, error) {
	e, executed, err := d.Driver.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		completion, err := work(ctx, tx)
		if err == nil && *d.lost < 2 {
			*d.lost++
			return completion, errLost
		}
		return completion, err
	})
	if errors.Is(err, errLost) {
		err = store.ErrConflict
	}
	return e, executed, err
}
