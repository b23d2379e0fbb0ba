// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// An event is written in the transaction of the order, and delivered if that
// commits.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
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

	out, err := outbox.New(d, &outbox.Config{Source: "/shop"})
	if err != nil {
		panic(err)
	}
	order := func(id string, fail error) {
		err := d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
			// ... the order's own rows ...
			err := out.Enqueue(ctx, tx, reprise.Message{Type: "order.created", Subject: "order/" + id})
			return errors.Join(err, fail)
		})
		fmt.Println("order", id, "error:", err)
	}
	order("1", nil)
	order("2", errors.New("out of stock"))

	delivered := make(chan string, 1)
	sink := outbox.SinkFunc(func(_ context.Context, m reprise.Message) error {
		delivered <- m.Type + " " + m.Subject
		return nil
	})
	relay, err := outbox.NewRelay(d.Relay(), sink, nil)
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()
	fmt.Println(<-delivered)
	cancel()
	fmt.Println("ended:", <-ended, "delivered:", relay.Stats().Delivered)
	// Output:
	// order 1 error: <nil>
	// order 2 error: out of stock
	// order.created order/1
	// ended: <nil> delivered: 1
}

// A sink says what kind of failure it met: of this message for good, of the
// destination as a whole, or one that another attempt may mend.
func ExampleSink() {
	var sink outbox.Sink = outbox.SinkFunc(func(_ context.Context, m reprise.Message) error {
		switch {
		case len(m.Data) > 1<<20:
			return outbox.Permanent(errors.New("the broker takes at most 1 MiB")) // parked at once
		case brokerIsDown():
			return outbox.Unavailable(errors.New("connection refused")) // costs no attempt
		}
		return nil // only after the broker has confirmed it
	})
	fmt.Println(sink.Deliver(context.Background(), reprise.Message{}))
	// Output: connection refused
}

func brokerIsDown() bool { return true }
