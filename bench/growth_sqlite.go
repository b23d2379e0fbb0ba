// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const sqliteFill = "INSERT INTO reprise_ledger (id, caller, operation, key, fingerprint, state, token, status, headers, body, reference, " +
	"claimed_at, completed_at, expires_at, tombstone_until) VALUES (?, ?, 'create-order', ?, ?, ?, ?, 201, ?, ?, ?, ?, ?, ?, ?)"

// fillSQLite fills an empty ledger.
func fillSQLite(ctx context.Context, path string, rows int) (err error) {
	db, err := sql.Open(modernc.name, "file:"+path+modernc.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	const chunk = 100_000
	now := time.Now()
	for from := 1; from <= rows; from += chunk {
		to := min(from+chunk-1, rows)
		if err := fillSQLiteRows(ctx, db, now, from, to, rows); err != nil {
			return err
		}
		if rows > 2*chunk && from%(2*chunk) == 1 {
			progress("%d of %d rows after %.0f s", to, rows, time.Since(now).Seconds())
		}
	}
	for _, statement := range []string{"ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// fillSQLiteRows inserts some of the rows as one transaction.
func fillSQLiteRows(ctx context.Context, db *sql.DB, now time.Time, from, to, rows int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	insert, err := tx.PrepareContext(ctx, sqliteFill)
	if err != nil {
		return err
	}
	const long = int64(400 * 24 * time.Hour / time.Microsecond)
	for n := from; n <= to; n++ {
		at := now.Add(-time.Duration(rows-n) * 30 * time.Millisecond).UnixMicro()
		h := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
		id := slices.Concat(binary.BigEndian.AppendUint64(nil, uint64(at/1000)<<16)[:6], h[:10])
		ref := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		state, expires, until := "completed", at+long, at+long
		var headers, body any = `{"Content-Type":["application/json"],"Location":["/orders/` + ref + `"]}`,
			[]byte(`{"id":"` + ref + `","ref":"` + ref +
				`","sku":"coffee-500g","quantity":3,"amount":3600,"currency":"EUR","note":"leave it with the neighbour, please","status":"open"}`)
		if n <= rows/5 {
			expires = at
		}
		if n <= rows/10 {
			state, until, headers, body = "tombstone", at, nil, nil
		}
		if _, err := insert.ExecContext(ctx, id, fmt.Sprint("customer-", n%1000), ref, append([]byte{1}, h[:]...), state, id,
			headers, body, "/orders/"+ref, at, at, expires, until); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// growSQLite is benchGrowth on SQLite.
func growSQLite(ctx context.Context, r *report, o options) error {
	_, err := inDirectory(func(dir string) (_ struct{}, err error) {
		g := growth[*sql.Tx]{name: "sqlite", rows: o.size(someRows)}
		for i, rows := range []int{fewRows, g.rows} {
			path := filepath.Join(dir, []string{"few.db", "many.db"}[i])
			s, err := openSQLite(ctx, path)
			if err != nil {
				return struct{}{}, err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			progress("filling a ledger with %d rows", rows)
			if err := fillSQLite(ctx, path, rows); err != nil {
				return struct{}{}, err
			}
			if i == 0 {
				g.few = s
				continue
			}
			g.many = s
			if err := sqliteStorage(ctx, r, path, rows); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, g.measure(ctx, r, o)
	})
	return err
}

// sqliteStorage says what a key takes up.
func sqliteStorage(ctx context.Context, r *report, path string, rows int) (err error) {
	db, err := sql.Open(modernc.name, "file:"+path+modernc.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	found, err := db.QueryContext(ctx, "SELECT name, sum(pgsize) FROM dbstat WHERE name LIKE 'reprise\\_ledger%' ESCAPE '\\' GROUP BY name ORDER BY name")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	var whole int64
	detail := []string{fmt.Sprintf("%d keys with bodies of about 220 B, a tenth of them tombstones", rows)}
	for found.Next() {
		var name string
		var size int64
		if err := found.Scan(&name, &size); err != nil {
			return err
		}
		whole += size
		detail = append(detail, fmt.Sprintf("%s %d", name, size/int64(rows)))
	}
	if err := found.Err(); err != nil {
		return err
	}
	r.add(row{Bench: "growth", Row: "sqlite: storage of one key, bytes", Ratio: float64(whole) / float64(rows), Runs: 1, Detail: strings.Join(detail, ", ")})
	return nil
}
