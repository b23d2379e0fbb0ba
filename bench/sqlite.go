// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// slice is how long one thing is measured before the next one has its turn.
const slice = 700 * time.Millisecond

// benchSQLite measures the keyed transaction (look-up, one order, the stored
// result, one event) with synchronous=FULL: group commit through store/sqlite
// against one transaction per request behind a mutex, written by hand on
// database/sql over the same schema.
func benchSQLite(ctx context.Context, r *report, o options) error {
	for _, driver := range sqliteDrivers {
		for _, callers := range []int{64, 1} {
			if err := benchGroupCommit(ctx, r, driver, callers, o.runs); err != nil {
				return fmt.Errorf("%s with %d callers: %w", driver.name, callers, err)
			}
		}
	}
	return benchSQLiteDrivers(ctx, r, o.runs)
}

// sqliteDriver is one registered driver.
type sqliteDriver struct {
	name, module string
	// options of the file's name ask for synchronous=FULL, immediate transactions
	// and WAL.
	options string
}

func benchGroupCommit(ctx context.Context, r *report, driver sqliteDriver, callers, runs int) error {
	var ratios, groupRates, mutexRates, groupP99, mutexP99 []float64
	for range runs {
		var took [2]measured
		for i, kind := range []func(context.Context, sqliteDriver, string) (keyed, error){openGroup, openMutex} {
			m, err := inDirectory(func(dir string) (measured, error) {
				k, err := kind(ctx, driver, filepath.Join(dir, "bench.db"))
				if err != nil {
					return measured{}, err
				}
				m, err := measure(ctx, callers, slice, k.do)
				return m, errors.Join(err, k.check(ctx, m.count), k.close())
			})
			if err != nil {
				return err
			}
			took[i] = m
		}
		group, mutex := took[0], took[1]
		ratios = append(ratios, group.rate/mutex.rate)
		groupRates, mutexRates = append(groupRates, group.rate), append(mutexRates, mutex.rate)
		groupP99, mutexP99 = append(groupP99, ms(group.p99)), append(mutexP99, ms(mutex.p99))
	}
	target, p99 := 5.0, 10.0
	switch {
	case driver != sqliteDrivers[0]:
		target, p99 = 0, 0 // the targets are those of the driver that was chosen
	case callers == 1:
		target, p99 = 0.9, 0
	}
	r.add(row{
		Bench: "sqlite", Row: fmt.Sprintf("%s, %d callers: group commit / mutex", driver.name, callers),
		Ratio: median(ratios), Target: target, Runs: runs,
		Detail: fmt.Sprintf("%.0f/s against %.0f/s; ratios %.2f to %.2f", median(groupRates), median(mutexRates),
			slices.Min(ratios), slices.Max(ratios)),
	})
	r.add(row{
		Bench: "sqlite", Row: fmt.Sprintf("%s, %d callers: group commit p99 in ms", driver.name, callers),
		Ratio: median(groupP99), Target: p99, AtMost: true, Runs: runs,
		Detail: fmt.Sprintf("mutex %.2f ms", median(mutexP99)),
	})
	return nil
}

// keyed is one way to make a keyed transaction.
type keyed struct {
	do    func(ctx context.Context) error
	check func(ctx context.Context, n int64) error
	close func() error
}

func openBench(ctx context.Context, driver sqliteDriver, path string) (*sql.DB, *sqlite.Driver, error) {
	db, err := sql.Open(driver.name, "file:"+path+driver.options)
	if err != nil {
		return nil, nil, err
	}
	d, err := sqlite.New(ctx, db, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := migrate.Up(ctx, d); err != nil {
		return nil, nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT, sku TEXT, amount INTEGER)")
	return db, d, err
}

// openGroup is store/sqlite.
func openGroup(ctx context.Context, driver sqliteDriver, path string) (keyed, error) {
	db, d, err := openBench(ctx, driver, path)
	if err != nil {
		return keyed{}, err
	}
	return keyed{
		do: func(ctx context.Context) error {
			in := newIntent()
			_, executed, err := d.Execute(ctx, store.Claim{Intent: in, Token: store.Token(in.ID()), Number: 1},
				func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
					if _, err := tx.ExecContext(ctx, insertOrder, string(in.Key), "sku", 1200); err != nil {
						return store.Completion{}, err
					}
					if err := d.Enqueue(ctx, tx, newMessage()); err != nil {
						return store.Completion{}, err
					}
					return store.Completion{Result: newResult(), Retention: 24 * time.Hour, Tombstone: 720 * time.Hour}, nil
				})
			if err == nil && !executed {
				return errors.New("a fresh key was found")
			}
			return err
		},
		check: func(ctx context.Context, n int64) error { return countRows(ctx, db, n) },
		close: func() error { return errors.Join(d.Close(), db.Close()) },
	}, nil
}

const insertOrder = "INSERT INTO orders (id, sku, amount) VALUES (?, ?, ?)"

// openMutex is what a careful author writes without store/sqlite: the same rows
// in one transaction, statements prepared, one at a time.
func openMutex(ctx context.Context, driver sqliteDriver, path string) (keyed, error) {
	db, d, err := openBench(ctx, driver, path)
	if err != nil {
		return keyed{}, err
	}
	if err := d.Close(); err != nil {
		return keyed{}, err
	}
	db.SetMaxOpenConns(1)
	stmts := make([]*sql.Stmt, 0, 4)
	for _, query := range []string{
		"SELECT status FROM reprise_ledger WHERE id = ?",
		insertOrder,
		"INSERT INTO reprise_ledger (id, caller, operation, key, fingerprint, state, token, status, headers, body, reference, " +
			"claimed_at, completed_at, expires_at, tombstone_until) VALUES (?, ?, ?, ?, ?, 'completed', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		"INSERT INTO reprise_outbox (message_id, source, type, subject, time, content_type, data, enqueued_at) " +
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
	} {
		s, err := db.PrepareContext(ctx, query)
		if err != nil {
			return keyed{}, err
		}
		stmts = append(stmts, s)
	}
	var mu sync.Mutex
	return keyed{
		do: func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return keyedByHand(ctx, db, stmts)
		},
		check: func(ctx context.Context, n int64) error { return countRows(ctx, db, n) },
		close: db.Close,
	}, nil
}

func keyedByHand(ctx context.Context, db *sql.DB, stmts []*sql.Stmt) error {
	in, m, res := newIntent(), newMessage(), newResult()
	id, at := in.ID(), time.Now().UnixMicro()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var status int
	if err := tx.StmtContext(ctx, stmts[0]).QueryRowContext(ctx, id[:]).Scan(&status); !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("a fresh key was found: %w", err)
	}
	for i, args := range [][]any{
		{string(in.Key), "sku", 1200},
		{
			id[:], string(in.Caller), string(in.Operation), string(in.Key), in.Fingerprint[:], id[:], res.Status,
			`{"Content-Type":["application/json"]}`, res.Body, res.Reference, at, at, at, at,
		},
		{m.ID, m.Source, m.Type, m.Subject, at, m.ContentType, m.Data, at},
	} {
		if _, err := tx.StmtContext(ctx, stmts[i+1]).ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// newIntent has a random key, the dearer case of the two.
func newIntent() reprise.Intent {
	return reprise.Intent{
		Caller: "bench", Operation: "create-order", Key: "k-" + reprise.NewKey()[14:],
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion},
	}
}

func newMessage() reprise.Message {
	return reprise.Message{
		ID: string(reprise.NewKey()), Source: "/bench", Type: "order.created", Time: time.Now(),
		ContentType: "application/json", Data: []byte(`{"id":"ord_1","sku":"sku","amount":1200,"currency":"EUR"}`),
	}
}

func newResult() reprise.Result {
	return reprise.Result{
		Status: 201, Reference: "/orders/ord_1", Header: map[string][]string{"Content-Type": {"application/json"}},
		Body: []byte(`{"id":"ord_1","ref":"r","sku":"sku","quantity":1,"amount":1200,"currency":"EUR","status":"open","version":1}`),
	}
}

// countRows makes sure that what was measured happened.
func countRows(ctx context.Context, db *sql.DB, want int64) error {
	for _, table := range []string{"orders", "reprise_ledger", "reprise_outbox"} {
		var n int64
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%d requests were answered, %s has %d rows", want, table, n)
		}
	}
	return nil
}

func inDirectory[T any](do func(dir string) (T, error)) (result T, err error) {
	dir, err := os.MkdirTemp("", "reprise-bench-")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return do(dir)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
