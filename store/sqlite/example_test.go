// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// One intent is executed once, however often it is asked for. Users call the
// driver through package ledger; this is what happens beneath.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		panic(err)
	}
	defer db.Close()

	ctx := context.Background()
	d, err := sqlite.New(ctx, db, nil)
	if err != nil {
		panic(err)
	}
	defer d.Close()
	if err := migrate.Up(ctx, d); err != nil {
		panic(err)
	}
	if _, err := db.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, sku TEXT)"); err != nil {
		panic(err)
	}

	intent := reprise.Intent{
		Caller: "alice", Operation: "create-order", Key: "order-4711",
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion},
	}
	for attempt := range 3 {
		e, executed, err := d.Execute(ctx, store.Claim{Intent: intent, Token: store.Token{byte(attempt)}, Number: attempt + 1},
			func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO orders (sku) VALUES ('tea')")
				return store.Completion{
					Result:    reprise.Result{Status: 201, Reference: "/orders/1"},
					Retention: 24 * time.Hour, Tombstone: 30 * 24 * time.Hour,
				}, err
			})
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Result.Status, e.Result.Reference, executed)
	}
	var orders int
	if err := db.QueryRow("SELECT count(*) FROM orders").Scan(&orders); err != nil {
		panic(err)
	}
	fmt.Println("orders:", orders)
	// Output:
	// 201 /orders/1 true
	// 201 /orders/1 false
	// 201 /orders/1 false
	// orders: 1
}
