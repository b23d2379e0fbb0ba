// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// open returns a ledger over a new SQLite file, with a table of orders.
func open(ctx context.Context) (l *ledger.Ledger[*sql.Tx], db *sql.DB, closeAll func()) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	d, err := sqlite.New(ctx, db, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := migrate.Up(ctx, d); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT, charge TEXT)"); err != nil {
		log.Fatal(err)
	}
	l, err = ledger.New[*sql.Tx](d, nil)
	if err != nil {
		log.Fatal(err)
	}
	return l, db, func() {
		if err := errors.Join(d.Close(), db.Close(), os.RemoveAll(dir)); err != nil {
			log.Print(err)
		}
	}
}

// An intent is executed once, in the transaction that also keeps its result.
// However often it is sent again, the answer is the same and nothing happens.
func ExampleLedger_Do() {
	ctx := context.Background()
	l, db, closeAll := open(ctx)
	defer closeAll()

	intent := reprise.Intent{
		Caller:    "alice", // From authentication, never from the request.
		Operation: "create-order",
		Key:       reprise.NewKey(), // Chosen by the client.
		// wire.Shape makes the fingerprint of a request.
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 42},
	}

	for range 3 {
		answer, err := l.Do(ctx, intent, ledger.Options{}, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			r, err := tx.ExecContext(ctx, "INSERT INTO orders (what) VALUES (?)", "tea")
			if err != nil {
				return reprise.Result{}, err
			}
			id, err := r.LastInsertId()
			return reprise.Result{
				Status: 201,
				Header: map[string][]string{"Location": {fmt.Sprintf("/orders/%d", id)}},
				Body:   fmt.Appendf(nil, `{"id":%d}`, id),
			}, err
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s replayed=%v\n", answer.Result.Status, answer.Result.Body, answer.Replayed)
	}
	var orders int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&orders); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("orders:", orders)
	// Output:
	// 201 {"id":1} replayed=false
	// 201 {"id":1} replayed=true
	// 201 {"id":1} replayed=true
	// orders: 1
}

// A staged operation calls another system. Here the first answer of the payment
// provider is lost: the client is told that the outcome is unknown, and its next
// attempt sends the same bytes under the same key, so the provider charges once.
func ExampleStaged_Do() {
	ctx := context.Background()
	l, _, closeAll := open(ctx)
	defer closeAll()

	charges := map[reprise.Key]string{}
	requests := 0
	provider := func(_ context.Context, key reprise.Key, request []byte) ([]byte, error) {
		requests++
		if _, known := charges[key]; !known {
			charges[key] = string(request)
		}
		if requests == 1 {
			return nil, errors.New("connection reset by peer")
		}
		return fmt.Appendf(nil, "charge %d", len(charges)), nil
	}

	pay, err := ledger.NewStaged(l, "pay", func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
		receipt, err := run.Call(ctx, "charge", run.Input(), provider)
		if err != nil {
			return err
		}
		_, err = run.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders (what, charge) VALUES (?, ?)", "tea", string(receipt))
			return reprise.Result{Status: 201, Body: receipt}, err
		})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	intent := reprise.Intent{
		Caller: "alice", Operation: "pay", Key: reprise.NewKey(),
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 42},
	}
	for range 3 {
		answer, err := pay.Do(ctx, intent, ledger.Options{}, []byte("10 EUR"))
		if err != nil {
			fmt.Println(reprise.CodeOf(err))
			continue
		}
		fmt.Printf("%d %s replayed=%v\n", answer.Result.Status, answer.Result.Body, answer.Replayed)
	}
	fmt.Println("requests:", requests, "charges:", len(charges))
	// Output:
	// outcome-unknown
	// 201 charge 1 replayed=false
	// 201 charge 1 replayed=true
	// requests: 2 charges: 1
}

// What says something of this moment only is answered without being stored, and
// the key stays free.
func ExampleRefuse() {
	ctx := context.Background()
	l, db, closeAll := open(ctx)
	defer closeAll()

	intent := reprise.Intent{
		Caller: "alice", Operation: "cancel-order", Key: reprise.NewKey(),
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 42},
	}
	cancel := func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		r, err := tx.ExecContext(ctx, "DELETE FROM orders WHERE id = 1")
		if err != nil {
			return reprise.Result{}, err
		}
		if n, err := r.RowsAffected(); n == 0 {
			return reprise.Result{}, errors.Join(err, ledger.Refuse(reprise.Result{Status: 404}))
		}
		return reprise.Result{Status: 204}, nil
	}
	for range 2 {
		answer, err := l.Do(ctx, intent, ledger.Options{}, cancel)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Result.Status, !answer.ExpiresAt.IsZero())
		if _, err := db.ExecContext(ctx, "INSERT OR IGNORE INTO orders (id, what) VALUES (1, 'tea')"); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// 404 false
	// 204 true
}
