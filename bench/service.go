// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

// order is about 200 bytes of JSON: the row, the event and the answer.
type order struct {
	ID       string `json:"id"`
	Ref      string `json:"ref"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Note     string `json:"note"`
	Status   string `json:"status"`
}

// newOrder makes an order under a new id that is ordered by time.
func newOrder() (id string, content []byte) {
	id = string(reprise.NewKey())
	content, err := json.Marshal(order{
		ID: id, Ref: id, SKU: "coffee-500g", Quantity: 3, Amount: 3600, Currency: "EUR",
		Note: "leave it with the neighbour, please", Status: "open",
	})
	if err != nil {
		panic(err) // It has only texts and numbers.
	}
	return id, content
}

// service makes orders through the library, as its author would write it: a handler
// that inserts the order, enqueues the event and returns the answer.
type service[TTx any] struct {
	driver store.Driver[TTx]
	ledger *ledger.Ledger[TTx]
	events *outbox.Outbox[TTx]
	insert func(ctx context.Context, tx TTx, id string, content []byte) error
	close  func() error
	// unordered events have no subject, so nothing needs to keep them in order.
	unordered bool

	// made counts the orders.
	made atomic.Int64
}

func newService[TTx any](d store.Driver[TTx], end func() error,
	insert func(ctx context.Context, tx TTx, id string, content []byte) error,
) (*service[TTx], error) {
	l, err := ledger.New(d, nil)
	if err != nil {
		return nil, err
	}
	events, err := outbox.New(d, &outbox.Config{Source: "/bench"})
	return &service[TTx]{driver: d, ledger: l, events: events, insert: insert, close: end}, err
}

// closingDriver is what the stores on database/sql make.
type closingDriver interface {
	store.Driver[*sql.Tx]
	Close() error
}

// openSQL opens a service on database/sql, with a connection for each worker.
func openSQL[D closingDriver](name, dsn, insert string, open func(*sql.DB) (D, error)) (*service[*sql.Tx], *sql.DB, error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(workers)
	db.SetMaxIdleConns(workers)
	d, err := open(db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	s, err := newService(d, func() error { return errors.Join(d.Close(), db.Close()) },
		func(ctx context.Context, tx *sql.Tx, id string, content []byte) error {
			_, err := tx.ExecContext(ctx, insert, id, content)
			return err
		})
	return s, db, err
}

func intentOf(key reprise.Key) reprise.Intent {
	return reprise.Intent{
		Caller: "bench", Operation: "create-order", Key: key,
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion},
	}
}

// do asks for an order. during, if not nil, runs inside of the transaction after the
// order's row.
func (s *service[TTx]) do(ctx context.Context, key reprise.Key, number int, during func(context.Context) error) (ledger.Answer, error) {
	return s.ledger.Do(ctx, intentOf(key), ledger.Options{Number: number}, func(ctx context.Context, tx TTx) (reprise.Result, error) {
		id, content := newOrder()
		if err := s.insert(ctx, tx, id, content); err != nil {
			return reprise.Result{}, err
		}
		if during != nil {
			if err := during(ctx); err != nil {
				return reprise.Result{}, err
			}
		}
		event := reprise.Message{Type: "order.created", Subject: id, Data: content}
		if s.unordered {
			event.Subject = ""
		}
		if err := s.events.Enqueue(ctx, tx, event); err != nil {
			return reprise.Result{}, err
		}
		return reprise.Result{
			Status: 201, Reference: "/orders/" + id, Body: content,
			Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/orders/" + id}},
		}, nil
	})
}

// fresh makes an order under a new key.
func (s *service[TTx]) fresh(ctx context.Context) (reprise.Key, error) {
	key := reprise.NewKey()
	a, err := s.do(ctx, key, 1, nil)
	if err == nil && a.Replayed {
		err = errors.New("a fresh key was found")
	}
	if err == nil {
		s.made.Add(1)
	}
	return key, err
}

// prepare makes n orders and returns their keys.
func (s *service[TTx]) prepare(ctx context.Context, n int) ([]reprise.Key, error) {
	keys := make([]reprise.Key, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	failures := make([]error, workers)
	for i := range failures {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(keys)) && failures[i] == nil; n = next.Add(1) - 1 {
				keys[n], failures[i] = s.fresh(ctx)
			}
		})
	}
	wg.Wait()
	return keys, errors.Join(failures...)
}

// again asks for one of the orders that exist.
func (s *service[TTx]) again(ctx context.Context, key reprise.Key) error {
	a, err := s.do(ctx, key, 2, nil)
	if err == nil && !a.Replayed {
		err = fmt.Errorf("the completed key %s was executed again", key)
	}
	return err
}
