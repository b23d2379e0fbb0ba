// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/postgres"
)

// A ledger.Ledger is what services use. This is what it does with the driver: an
// order is made once, however often it is asked for.
func ExampleDriver_Execute() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	d, err := postgres.New(ctx, db, nil)
	if err != nil {
		panic(err)
	}
	defer d.Close()
	if err := migrate.Up(ctx, d); err != nil {
		panic(err)
	}
	in := reprise.Intent{Caller: "alice", Operation: "create-order", Key: reprise.NewKey(), Fingerprint: reprise.Fingerprint{1, 42}}
	for range 2 {
		e, executed, err := d.Execute(ctx, store.Claim{Intent: in, Token: store.NewToken()},
			func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO orders (caller) VALUES ($1)", string(in.Caller))
				return store.Completion{Result: reprise.Result{Status: 201}, Retention: 24 * time.Hour, Tombstone: 720 * time.Hour}, err
			})
		fmt.Println(e.Result.Status, executed, err)
	}
}
