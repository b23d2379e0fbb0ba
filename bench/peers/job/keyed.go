// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LedgerSchema is the table that most people write for themselves.
const LedgerSchema = `
CREATE TABLE IF NOT EXISTS idempotency_keys (
    caller      text NOT NULL,
    key         text NOT NULL,
    fingerprint bytea NOT NULL,
    status      int,
    answer      bytea,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (caller, key)
);`

// errReused says that a key came with another request.
var errReused = errors.New("the key was used for another request")

// WithLedger does the job under a ledger that is written by hand: the key is
// claimed in the transaction, which makes a duplicate wait for it, and the answer
// is stored with it. event writes the event.
func WithLedger(ctx context.Context, pool *pgxpool.Pool, key string, r Request,
	event func(ctx context.Context, tx pgx.Tx, o Order) error,
) (answer []byte, err error) {
	asked, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	fingerprint := sha256.Sum256(asked)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx,
			"INSERT INTO idempotency_keys (caller, key, fingerprint) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
			"bench", key, fingerprint[:])
		if err != nil {
			return err
		}
		if claimed.RowsAffected() == 0 {
			var stored []byte
			err := tx.QueryRow(ctx, "SELECT fingerprint, answer FROM idempotency_keys WHERE caller = $1 AND key = $2",
				"bench", key).Scan(&stored, &answer)
			if err == nil && !bytes.Equal(stored, fingerprint[:]) {
				err = errReused
			}
			return err
		}
		o := NewOrder(r)
		answer = o.JSON()
		if _, err := tx.Exec(ctx, InsertOrder, o.ID, answer); err != nil {
			return err
		}
		if err := event(ctx, tx, o); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE idempotency_keys SET status = 201, answer = $3 WHERE caller = $1 AND key = $2",
			"bench", key, answer)
		return err
	})
	return answer, err
}

// ColumnSchema has the key on the order instead of a ledger.
const ColumnSchema = `
ALTER TABLE orders ADD COLUMN IF NOT EXISTS key text UNIQUE;`

// WithColumn does the job with the least that tells a repeat: the key is a unique
// column of the order. Nothing stores the answer, which is read from the order as
// it is by then, nor what was asked.
func WithColumn(ctx context.Context, pool *pgxpool.Pool, key string, r Request,
	event func(ctx context.Context, tx pgx.Tx, o Order) error,
) (answer []byte, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		o := NewOrder(r)
		answer = o.JSON()
		made, err := tx.Exec(ctx, "INSERT INTO orders (id, content, key) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING",
			o.ID, answer, key)
		if err != nil {
			return err
		}
		if made.RowsAffected() == 0 {
			return tx.QueryRow(ctx, "SELECT content FROM orders WHERE key = $1", key).Scan(&answer)
		}
		return event(ctx, tx, o)
	})
	return answer, err
}
