// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// byHand makes keyed orders without the library, in the ways that it might.
type byHand struct{ pool *pgxpool.Pool }

// job is one order with everything that its transaction writes.
type job struct {
	id      string
	content []byte
	intent  reprise.IntentID
	token   store.Token
}

func newJob() job {
	id, content := newOrder()
	return job{id: id, content: content, intent: intentOf(reprise.NewKey()).ID(), token: store.NewToken()}
}

// statement is one statement of a job.
type statement struct {
	sql  string
	args func(j job) []any
}

func orderArgs(j job) []any { return []any{j.id, j.content} }

var orderRow = statement{postgresOrder, orderArgs}

const recordColumns = "id, caller, operation, key, fingerprint, token, state, claimed_at"

// claimRow is a claim that is a row, which another attempt at the key waits for.
var claimRow = statement{
	"INSERT INTO scheme_claim (" + recordColumns + ") VALUES ($1, $2, $3, $4, $5, $6, 'in_progress', clock_timestamp())",
	func(j job) []any { return record(j)[:6] },
}

var updateRow = statement{
	`UPDATE scheme_claim SET state = 'completed', status = $2, headers = $3, body = $4, reference = $5, completed_at = statement_timestamp(),
	expires_at = statement_timestamp() + interval '1 day', tombstone_until = statement_timestamp() + interval '30 days' WHERE id = $1`,
	func(j job) []any { return append(record(j)[:1], record(j)[6:]...) },
}

// claimLock is a claim that is a lock, which another attempt doesn't get. It
// raises an error then, and also if there is a record.
var claimLock = statement{
	`SELECT 1 / CASE WHEN pg_try_advisory_xact_lock($2) AND NOT EXISTS (SELECT FROM scheme_ledger WHERE id = $1)
	AND pg_try_advisory_xact_lock_shared($3, $4) AND set_config('bench.token', $5, true) <> '' THEN 1 ELSE 0 END`,
	func(j job) []any {
		lock := int64(binary.BigEndian.Uint64(j.intent[8:])) // any 64 bits will do
		return []any{[16]byte(j.intent), lock, int32(lock), int32(lock >> 32), fmt.Sprintf("%x", j.token)}
	},
}

func record(j job) []any {
	return []any{
		[16]byte(j.intent), "bench", "create-order", j.id, make([]byte, 33), [16]byte(j.token),
		201, `{"Content-Type":["application/json"],"Location":["/orders/` + j.id + `"]}`, j.content, "/orders/" + j.id,
	}
}

const (
	recordInsert = " (" + recordColumns + `, completed_at, expires_at, tombstone_until, status, headers, body, reference)
	VALUES ($1, $2, $3, $4, $5, $6, 'completed', now(), statement_timestamp(), statement_timestamp() + interval '1 day',
	statement_timestamp() + interval '30 days', $7, $8, $9, $10)`
	messageColumns = "hash, message_id, source, type, time, data"
)

func message(j job) []any {
	id := reprise.NewKey()
	hash := reprise.Intent{Caller: "/bench", Operation: "message", Key: id}.ID()
	return []any{[16]byte(hash), string(id), "/bench", "order.created", time.Now(), j.content}
}

func insertRow(table string) statement {
	return statement{"INSERT INTO " + table + recordInsert, record}
}

func insertInto(table string) statement {
	return statement{"INSERT INTO " + table + " (" + messageColumns + ") VALUES ($1, $2, $3, $4, $5, $6)", message}
}

func both(j job) []any { return append(record(j), message(j)...) }

func insertBoth(ledger, outbox string) statement {
	return statement{"WITH l AS (INSERT INTO " + ledger + recordInsert + ") INSERT INTO " + outbox + " (" + messageColumns +
		") VALUES ($11, $12, $13, $14, $15, $16)", both}
}

var insertFused = statement{
	"INSERT INTO scheme_fused" + strings.NewReplacer("reference)", "reference, "+messageColumns+")", "$10)", "$10, $11, $12, $13, $14, $15, $16)").Replace(recordInsert),
	both,
}

// unkeyed is what a service does without keys.
func (h byHand) unkeyed(ctx context.Context, event bool) error {
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	id, content := newOrder()
	if _, err := tx.Exec(ctx, postgresOrder, id, content); err != nil {
		return err
	}
	if event {
		if _, err := tx.Exec(ctx, postgresEvent, "order.created", content); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// usual does one statement after the other.
func (h byHand) usual(ctx context.Context, _ int) error {
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	j := newJob()
	for _, s := range []statement{claimRow, orderRow, insertInto("scheme_outbox_text"), updateRow} {
		if _, err := tx.Exec(ctx, s.sql, s.args(j)...); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// riding sends BEGIN and the claim with the order, and last with COMMIT.
func (h byHand) riding(claim statement, last ...statement) func(ctx context.Context, _ int) error {
	first := []statement{{sql: "begin"}, claim, orderRow}
	last = append(last, statement{sql: "commit"})
	return func(ctx context.Context, _ int) error {
		conn, err := h.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		j := newJob()
		if _, err := send(ctx, conn, j, first); err != nil {
			return err
		}
		tag, err := send(ctx, conn, j, last)
		return errors.Join(err, committed(tag))
	}
}

func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return fmt.Errorf("COMMIT was answered %q", tag)
	}
	return nil
}

// oneMessage sends everything at once. Nothing else is in the transaction, so it
// needs no BEGIN.
func (h byHand) oneMessage(ctx context.Context, _ int) error {
	_, err := send(ctx, h.pool, newJob(), []statement{claimLock, orderRow, insertRow("scheme_ledger_expiry"), insertInto("scheme_outbox_text")})
	return err
}

// send sends statements as one batch and returns the last tag.
func send(ctx context.Context, by interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, j job, statements []statement,
) (tag pgconn.CommandTag, err error) {
	b := &pgx.Batch{}
	for _, s := range statements {
		b.Queue(s.sql, s.arguments(j)...)
	}
	r := by.SendBatch(ctx, b)
	for range statements {
		if tag, err = r.Exec(); err != nil {
			_ = r.Close()
			return tag, err
		}
	}
	return tag, r.Close()
}

func (s statement) arguments(j job) []any {
	if s.args == nil {
		return nil
	}
	return s.args(j)
}

// pipelined is riding without pgx.Batch: what could be saved below it.
func (h byHand) pipelined(ctx context.Context, _ int) error {
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	j := newJob()
	if _, err := pipe(ctx, conn.Conn(), j, []statement{{sql: "begin"}, claimLock, orderRow}); err != nil {
		return err
	}
	tag, err := pipe(ctx, conn.Conn(), j, []statement{insertBoth("scheme_ledger_expiry", "scheme_outbox_text"), {sql: "commit"}})
	return errors.Join(err, committed(tag))
}

// pipe sends prepared statements down a pipeline of pgconn and returns the last tag.
func pipe(ctx context.Context, conn *pgx.Conn, j job, statements []statement) (tag pgconn.CommandTag, err error) {
	kept := conn.PgConn().CustomData()
	described := make([]*pgconn.StatementDescription, len(statements))
	for i, s := range statements {
		d, ok := kept[s.sql].(*pgconn.StatementDescription)
		if !ok {
			if d, err = conn.Prepare(ctx, s.sql, s.sql); err != nil {
				return tag, err
			}
			kept[s.sql] = d
		}
		described[i] = d
	}
	p := conn.PgConn().StartPipeline(ctx)
	defer func() { err = errors.Join(err, p.Close()) }()
	var q pgx.ExtendedQueryBuilder
	for i, d := range described {
		if err := q.Build(conn.TypeMap(), d, statements[i].arguments(j)); err != nil {
			return tag, err
		}
		p.SendQueryStatement(d, q.ParamValues, q.ParamFormats, q.ResultFormats)
	}
	if err := p.Sync(); err != nil {
		return tag, err
	}
	for range described {
		r, err := p.GetResults()
		if err != nil {
			return tag, err
		}
		if tag, err = r.(*pgconn.ResultReader).Close(); err != nil {
			return tag, err
		}
	}
	return tag, nil
}
