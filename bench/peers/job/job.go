// SPDX-License-Identifier: Apache-2.0

// Package job is what all peers have in common: the request, the rows, the
// answer, and how a program is served and reports that it is ready.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is of the order and of the event, as a service without any library
// would have them.
const Schema = `
CREATE TABLE IF NOT EXISTS orders (
    id         uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    content    jsonb NOT NULL
);
CREATE TABLE IF NOT EXISTS events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    topic      text NOT NULL,
    content    jsonb NOT NULL
);`

// The statements of the job.
const (
	InsertOrder = "INSERT INTO orders (id, content) VALUES ($1, $2)"
	InsertEvent = "INSERT INTO events (topic, content) VALUES ($1, $2)"
	Topic       = "order.created"
)

// Request is what the client sends.
type Request struct {
	Ref      string `json:"ref"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Note     string `json:"note"`
}

// Order is the row, the event and the answer: about 200 bytes of JSON.
type Order struct {
	ID       string `json:"id"`
	Ref      string `json:"ref"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Note     string `json:"note"`
	Status   string `json:"status"`
}

// NewOrder makes the order that is asked for, under a new id that is ordered by
// time.
func NewOrder(r Request) Order {
	return Order{
		ID: uuid.Must(uuid.NewV7()).String(), Ref: r.Ref, SKU: r.SKU, Quantity: r.Quantity,
		Amount: int64(r.Quantity) * 1200, Currency: "EUR", Note: r.Note, Status: "open",
	}
}

// JSON encodes an order.
func (o Order) JSON() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // It has only texts and numbers.
	}
	return b
}

// Execer is a pgx.Tx, as far as the job needs one.
type Execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// WriteBoth writes the order and, the usual way, its event into a table.
func WriteBoth(ctx context.Context, tx Execer, o Order) error {
	content := o.JSON()
	if _, err := tx.Exec(ctx, InsertOrder, o.ID, content); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, InsertEvent, Topic, content)
	return err
}

// Handler adapts do, which gets the key and the request and returns the answer.
func Handler(do func(ctx context.Context, key string, r Request) ([]byte, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var in Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			http.Error(w, "the Idempotency-Key is missing", http.StatusBadRequest)
			return
		}
		answer, err := do(r.Context(), key, in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
	return mux
}

// Ready is the line that a program prints once it serves.
type Ready struct {
	// Address and Path are where the job is posted to.
	Address string `json:"address"`
	Path    string `json:"path"`
	// Versions are the modules and servers that are compared.
	Versions []string `json:"versions"`
	// Events is the SQL that counts the events.
	Events string `json:"events"`
}

// Flags are those of every program.
var (
	dsn   = flag.String("dsn", "", "connection string of an empty PostgreSQL database")
	conns = flag.Int("conns", 32, "connections to it")
)

// Pool parses the flags, connects and creates the tables.
func Pool(ctx context.Context, schema ...string) (*pgxpool.Pool, error) {
	if !flag.Parsed() {
		flag.Parse()
	}
	config, err := pgxpool.ParseConfig(*dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(*conns)
	config.MinConns = int32(*conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, s := range append([]string{Schema}, schema...) {
		if _, err := pool.Exec(ctx, s); err != nil {
			return nil, err
		}
	}
	return pool, nil
}

// Main runs a program.
func Main(run func(ctx context.Context) error) {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// CountEvents is the SQL for programs that write events into a table of Schema.
const CountEvents = "SELECT count(*) FROM events"

// Serve serves h until standard input ends. events is the SQL that counts the
// events, modules are named beside their versions.
func Serve(h http.Handler, events string, modules ...string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	return Wait(Ready{l.Addr().String(), "/orders", Versions(modules...), events})
}

// Wait reports that a program is ready, and returns when it is no longer wanted.
func Wait(r Ready) error {
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Versions names modules with the versions that are linked.
func Versions(modules ...string) (found []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		panic(errors.New("the program has no build information"))
	}
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			found = append(found, m.Path+" "+m.Version)
		}
	}
	return found
}
