// SPDX-License-Identifier: Apache-2.0

package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// A message that is delivered twice is shipped once.
func ExampleInbox_Do() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "warehouse.db"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	d, err := sqlite.New(ctx, db, nil)
	if err != nil {
		panic(err)
	}
	defer d.Close()
	if err := migrate.Up(ctx, d); err != nil {
		panic(err)
	}

	in, err := inbox.New(d, "warehouse", nil)
	if err != nil {
		panic(err)
	}
	ship := func(_ context.Context, _ *sql.Tx, m reprise.Message) error {
		fmt.Println("shipped", m.Subject) // in earnest: rows written through tx
		return nil
	}
	m := reprise.Message{ID: "0197f2a0-1", Source: "/shop", Type: "order.created", Subject: "order/1"}
	for range 2 {
		done, err := in.Do(ctx, m, ship)
		fmt.Println(done, err)
	}
	// Output:
	// shipped order/1
	// handled <nil>
	// duplicate <nil>
}
