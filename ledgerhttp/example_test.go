// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// openExample opens a ledger on a new SQLite file with a table of tickets.
func openExample() (db *sql.DB, l *ledger.Ledger[*sql.Tx], closeAll func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", filepath.Join(dir, "tickets.db"))
	if err != nil {
		panic(err)
	}
	driver, err := sqlite.New(ctx, db, nil)
	if err != nil {
		panic(err)
	}
	if err := migrate.Up(ctx, driver); err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE tickets (id INTEGER PRIMARY KEY, seat TEXT NOT NULL)`); err != nil {
		panic(err)
	}
	l, err = ledger.New(driver, nil)
	if err != nil {
		panic(err)
	}
	return db, l, func() {
		_ = driver.Close()
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// everybody is the Callers of a service without callers.
func everybody(*http.Request) (reprise.Caller, error) { return reprise.Unscoped, nil }

// show sends a keyed POST and prints the answer.
func show(h http.Handler, key, body string) {
	r := httptest.NewRequest("POST", "/tickets", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	repeat := ""
	if w.Header().Get("Idempotent-Replayed") == "true" {
		repeat = " (repeat)"
	}
	fmt.Printf("%d %s%s\n", w.Code, w.Body, repeat)
}

// A typed handler sells a seat once, however often it is asked to under one key.
func ExampleAtomic() {
	db, l, closeAll := openExample()
	defer closeAll()

	promises, err := contract.New(contract.Operation{
		Name: "sell-ticket", Method: "POST", Path: "/tickets",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
	})
	if err != nil {
		panic(err)
	}
	server, err := ledgerhttp.NewServer(l, ledgerhttp.Config{Contract: promises, Callers: everybody})
	if err != nil {
		panic(err)
	}

	type sale struct {
		Seat string `json:"seat"`
	}
	handler := ledgerhttp.Atomic(server, "sell-ticket",
		func(r *ledgerhttp.Request) (sale, error) {
			in, err := ledgerhttp.DecodeJSON[sale](r)
			if err == nil && in.Seat == "" {
				err = ledgerhttp.Invalid("the seat must not be empty")
			}
			return in, err
		},
		func(ctx context.Context, tx *sql.Tx, in sale) (reprise.Result, error) {
			r, err := tx.ExecContext(ctx, `INSERT INTO tickets (seat) VALUES (?)`, in.Seat)
			if err != nil {
				return reprise.Result{}, err
			}
			id, err := r.LastInsertId()
			if err != nil {
				return reprise.Result{}, err
			}
			return ledgerhttp.JSON(http.StatusCreated, map[string]any{"ticket": id, "seat": in.Seat})
		})

	show(handler, "intent-1", `{"seat":"A1"}`)
	show(handler, "intent-1", `{"seat":"A1"}`)
	show(handler, "intent-2", `{"seat":"A2"}`)

	var sold int
	if err := db.QueryRow(`SELECT count(*) FROM tickets`).Scan(&sold); err != nil {
		panic(err)
	}
	fmt.Println(sold, "tickets")
	// Output:
	// 201 {"seat":"A1","ticket":1}
	// 201 {"seat":"A1","ticket":1} (repeat)
	// 201 {"seat":"A2","ticket":2}
	// 2 tickets
}

// Any http.Handler can stand under the ledger. It takes its transaction from the
// context and writes its response as always.
func ExampleServer_Middleware() {
	db, l, closeAll := openExample()
	defer closeAll()

	promises, err := contract.New(contract.Operation{
		Name: "sell-ticket", Method: "POST", Path: "/tickets",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
	})
	if err != nil {
		panic(err)
	}
	server, err := ledgerhttp.NewServer(l, ledgerhttp.Config{Contract: promises, Callers: everybody})
	if err != nil {
		panic(err)
	}

	handler := server.Middleware("sell-ticket")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := ledgerhttp.Tx[*sql.Tx](r.Context())
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO tickets (seat) VALUES ('A1')`); err != nil {
			http.Error(w, "sold out", http.StatusInternalServerError) // Rolls back.
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "sold")
	}))

	show(handler, "intent-1", `{}`)
	show(handler, "intent-1", `{}`)

	var sold int
	if err := db.QueryRow(`SELECT count(*) FROM tickets`).Scan(&sold); err != nil {
		panic(err)
	}
	fmt.Println(sold, "ticket")
	// Output:
	// 201 sold
	// 201 sold (repeat)
	// 1 ticket
}

// A staged operation calls another system under a key of its own, which is the
// same on every attempt.
func ExampleStaged() {
	_, l, closeAll := openExample()
	defer closeAll()

	promises, err := contract.New(contract.Operation{
		Name: "charge", Method: "POST", Path: "/tickets",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Staged,
		Effects: []contract.Effect{{Name: "charge", By: contract.ByDownstreamKey}},
	})
	if err != nil {
		panic(err)
	}
	server, err := ledgerhttp.NewServer(l, ledgerhttp.Config{Contract: promises, Callers: everybody})
	if err != nil {
		panic(err)
	}

	charges := 0
	staged, err := ledger.NewStaged(l, "charge", func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
		receipt, err := run.Call(ctx, "charge", run.Input(),
			func(_ context.Context, key reprise.Key, request []byte) ([]byte, error) {
				if charges++; charges == 1 {
					return nil, errors.New("connection reset") // Was it charged?
				}
				return fmt.Appendf(nil, "paid %s", request), nil
			})
		if err != nil {
			return err
		}
		_, err = run.Finish(ctx, func(context.Context, *sql.Tx) (reprise.Result, error) {
			return ledgerhttp.JSON(http.StatusCreated, string(receipt))
		})
		return err
	})
	if err != nil {
		panic(err)
	}
	handler := ledgerhttp.Staged(server,
		func(r *ledgerhttp.Request) (string, error) { return string(r.Body), nil },
		staged,
		func(in string) ([]byte, error) { return []byte(in), nil })

	for range 3 {
		show(handler, "intent-1", `7`)
	}
	// Output:
	// 503 {"type":"urn:reprise:problem:outcome-unknown","title":"It is not known whether the request took effect","status":503,"detail":"it could not be established whether this was done; the same key finds out","code":"outcome-unknown","retry":"same-key","outcome":"unknown"}
	// 201 "paid 7"
	// 201 "paid 7" (repeat)
}

// Safe serves what only reads, with the same problems as the others.
func ExampleSafe() {
	db, l, closeAll := openExample()
	defer closeAll()

	promises, err := contract.New(contract.Operation{
		Name: "count-tickets", Method: "GET", Path: "/tickets", Safety: contract.Safe,
	})
	if err != nil {
		panic(err)
	}
	server, err := ledgerhttp.NewServer(l, ledgerhttp.Config{Contract: promises, Callers: everybody})
	if err != nil {
		panic(err)
	}
	handler := ledgerhttp.Safe(server, "count-tickets",
		func(r *ledgerhttp.Request) (string, error) { return r.URL.Query().Get("seat"), nil },
		func(ctx context.Context, seat string) (reprise.Result, error) {
			var n int
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM tickets WHERE seat = ?`, seat).Scan(&n); err != nil {
				return reprise.Result{}, err
			}
			if n == 0 {
				return reprise.Result{}, ledgerhttp.Refuse(http.StatusNotFound, "not-found", "nobody has bought this seat")
			}
			return ledgerhttp.JSON(http.StatusOK, n)
		})

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/tickets?seat=A1", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 404 application/problem+json
}
