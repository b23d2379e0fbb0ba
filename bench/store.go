// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
)

// workers is how many callers, and how many connections, the databases get.
const workers = 32

// storeSlice is how long one way is measured at a time.
const storeSlice = 500 * time.Millisecond

// preparedKeys is how many completed keys the replays go through.
const preparedKeys = 200 * workers

const (
	bareOrder  = "bare order"
	orderEvent = "unkeyed order + event"
)

// benchStore measures the rows that concern storage.
func benchStore(ctx context.Context, r *report, o options) error {
	for _, part := range []struct {
		name string
		run  func(context.Context, *report, options) error
	}{
		{"pgx", benchPgx},
		{"postgres", benchPostgres},
		{"mariadb", benchMariaDB},
		{"sqlite", benchStoreSQLite},
		{"http", benchHTTP},
	} {
		if !o.chosen(part.name) {
			continue
		}
		if err := part.run(ctx, r, o); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// table is the outcome of an alternation by the names of its ways.
type table struct {
	bench, base string
	runs        int
	of, bases   map[string]series
}

// alternate runs an alternation and names what it measured.
func (a alternation) alternate(ctx context.Context, bench string, ways ...way) (table, error) {
	base, others, err := a.run(ctx, ways...)
	if err != nil {
		return table{}, err
	}
	t := table{bench: bench, base: ways[0].name, runs: a.rounds, of: make(map[string]series), bases: make(map[string]series)}
	for i, w := range ways[1:] {
		t.of[w.name], t.bases[w.name] = others[i], base[i]
	}
	return t, nil
}

// add reports how many times the rate of one way the other has. A target of 0 means
// that the row informs.
func (t table) add(r *report, name, by string, target float64) {
	of := t.of[name]
	against := t.of[by]
	if by == t.base {
		against = t.bases[name]
	}
	ratios := of.over(against)
	r.add(row{
		Bench: t.bench, Row: name + " / " + by, Ratio: median(ratios), Target: target, Runs: t.runs,
		Detail: fmt.Sprintf("%.2f to %.2f, by processor time %.2f; %s; against %s", slices.Min(ratios), slices.Max(ratios),
			of.cheaper(against), of.detail(), against.detail()),
	})
}

// replays asks for orders that exist, each caller for others.
func replays(again func(context.Context, reprise.Key) error, keys []reprise.Key) func(ctx context.Context, caller int) error {
	next := make([]int, workers)
	for i := range next {
		next[i] = i
	}
	return func(ctx context.Context, caller int) error {
		key := keys[next[caller]%len(keys)]
		next[caller] += workers
		return again(ctx, key)
	}
}

// sqlUnkeyed is what a service does without keys.
func sqlUnkeyed(ctx context.Context, db *sql.DB, event bool, insertOrder, insertEvent string) error {
	id, content := newOrder()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, insertOrder, id, content); err != nil {
		return err
	}
	if event {
		if _, err := tx.ExecContext(ctx, insertEvent, "order.created", content); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// checkRows makes sure that what was measured happened: one record and one event
// for each key, whatever was killed, repeated or waited. exec runs SQL.
func checkRows(ctx context.Context, exec func(ctx context.Context, database, sql string) (string, error), database string, made int64) error {
	for _, name := range []string{"reprise_ledger", "reprise_outbox"} {
		out, err := exec(ctx, database, "SELECT count(*) FROM "+name)
		if err != nil {
			return err
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64); err != nil || n != made {
			return fmt.Errorf("%d keys were executed, %s has %s rows", made, name, strings.TrimSpace(out))
		}
	}
	return nil
}
