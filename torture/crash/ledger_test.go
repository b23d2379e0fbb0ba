// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/torture/crash"
)

// lease is short, because every crash leaves a lease behind.
const lease = 150 * time.Millisecond

// charges is the payment provider: a table of its own, which is written without a
// proxy. It keeps every request, so an effect is a distinct key.
const chargeSQL = "INSERT INTO charges VALUES ('%s', '%s', '%s')"

// schema is what the service has beside the library's tables.
const schema = "CREATE TABLE orders (ref VARCHAR(64)); CREATE TABLE reservations (ref VARCHAR(64)); " +
	"CREATE TABLE charges (ref VARCHAR(64), id VARCHAR(64), request VARCHAR(64))"

// service is a service on the real ledger: an operation in the atomic mode, and
// one in the staged mode with two phases and a call between them.
type service[TTx any] struct {
	driver   store.Driver[TTx]
	ledger   *ledger.Ledger[TTx]
	pay      *ledger.Staged[TTx] // nil for the atomic mode
	provider *sql.DB
	// exec runs a statement of the business.
	exec  func(ctx context.Context, tx TTx, query string) error
	close func() error
}

// Operations of the service. The name of a program ends with one.
const (
	atomicMode = "order"
	stagedMode = "pay"
)

// openService declares the operations on a driver.
func openService[TTx any](d store.Driver[TTx], operation string, provider *sql.DB,
	exec func(ctx context.Context, tx TTx, query string) error, closer func() error,
) (crash.Program, error) {
	l, err := ledger.New(d, &ledger.Config{
		Lease: lease, Wait: 20 * time.Millisecond, WorkTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, closer())
	}
	s := &service[TTx]{driver: d, ledger: l, provider: provider, exec: exec, close: closer}
	switch operation {
	case once:
		return execution[TTx]{s}, nil
	case stagedMode:
		s.pay, err = ledger.NewStaged(l, stagedMode, s.payment)
	}
	return s, err
}

// Close implements crash.Program.
func (s *service[TTx]) Close() error { return s.close() }

// Attempt implements crash.Program.
func (s *service[TTx]) Attempt(ctx context.Context, o crash.Order) crash.Answer {
	in := reprise.Intent{
		Caller: "alice", Operation: atomicMode, Key: o.Key, Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 1},
	}
	var a ledger.Answer
	var err error
	if s.pay != nil {
		in.Operation = stagedMode
		a, err = s.pay.Do(ctx, in, ledger.Options{}, []byte(o.Ref))
	} else {
		a, err = s.ledger.Do(ctx, in, ledger.Options{}, func(ctx context.Context, tx TTx) (reprise.Result, error) {
			return s.order(ctx, tx, o.Ref)
		})
	}
	if err == nil {
		return crash.Answer{Outcome: reprise.Succeeded, Body: string(a.Result.Body)}
	}
	answer := crash.Answer{Detail: err.Error()}
	if e, ok := errors.AsType[*reprise.Error](err); ok {
		answer.Outcome = e.Outcome
	}
	return answer
}

// order writes the order and its event.
func (s *service[TTx]) order(ctx context.Context, tx TTx, ref string) (reprise.Result, error) {
	if err := s.exec(ctx, tx, "INSERT INTO orders VALUES ('"+ref+"')"); err != nil {
		return reprise.Result{}, err
	}
	err := s.driver.Enqueue(ctx, tx, reprise.Message{
		ID: ref, Source: "/shop", Type: "order.created", Subject: ref, Time: time.Now(), Data: []byte("{}"),
	})
	// Made by this execution, so that the answers of two executions would differ.
	return reprise.Result{Status: 201, Body: fmt.Append(nil, ref, " ", reprise.NewKey())}, err
}

// payment is the staged operation.
func (s *service[TTx]) payment(ctx context.Context, run *ledger.Run[TTx]) error {
	ref := string(run.Input())
	err := run.Tx(ctx, "reserve", func(ctx context.Context, tx TTx) error {
		return s.exec(ctx, tx, "INSERT INTO reservations VALUES ('"+ref+"')")
	})
	if err != nil {
		return err
	}
	request := fmt.Appendf(nil, "%.8s in drive %d", ref, run.Drive())
	response, err := run.Call(ctx, "charge", request, func(ctx context.Context, key reprise.Key, request []byte) ([]byte, error) {
		_, err := s.provider.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf(chargeSQL, ref, key, request))
		return []byte("charge of " + key), err
	})
	if err != nil {
		return err
	}
	_, err = run.Finish(ctx, func(ctx context.Context, tx TTx) (reprise.Result, error) {
		r, err := s.order(ctx, tx, ref)
		r.Body = append(r.Body, response...)
		return r, err
	})
	return err
}

// counts says how effects are counted, and want how many there are when an order
// was executed once. Records that are not completed are unfinished.
// On MariaDB a record's result is in a table of its own.
func counts(driver, operation string) (queries map[string]string, want crash.Effects) {
	queries = map[string]string{
		"order":      "SELECT COUNT(*) FROM orders WHERE ref = :ref",
		"event":      "SELECT COUNT(*) FROM reprise_outbox WHERE subject = :ref",
		"record":     "SELECT COUNT(*) FROM reprise_ledger l WHERE l.key = :key AND state = 'completed'",
		"unfinished": "SELECT COUNT(*) FROM reprise_ledger l WHERE l.key = :key AND state <> 'completed'",
	}
	if driver == "mysql" {
		records := "SELECT COUNT(*) FROM reprise_ledger l LEFT JOIN reprise_result r ON r.id = l.id AND r.state = 'completed' WHERE l.key = :key AND r.id IS "
		queries["record"], queries["unfinished"] = records+"NOT NULL", records+"NULL"
	}
	want = crash.Effects{"order": 1, "event": 1, "record": 1}
	if operation == stagedMode {
		queries["reservation"] = "SELECT COUNT(*) FROM reservations WHERE ref = :ref"
		queries["charge"] = "SELECT COUNT(DISTINCT id) FROM charges WHERE ref = :ref"
		queries["request"] = "SELECT COUNT(DISTINCT request) FROM charges WHERE ref = :ref"
		want["reservation"], want["charge"], want["request"] = 1, 1, 1
	}
	return queries, want
}

// closers closes several things, the last one first.
func closers(all ...io.Closer) func() error {
	return func() (err error) {
		for _, c := range slices.Backward(all) {
			err = errors.Join(err, c.Close())
		}
		return err
	}
}
