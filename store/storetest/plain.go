// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
)

// PlainSQL is Plain for every driver whose transaction is a *sql.Tx. The caller
// closes db.
func PlainSQL(db *sql.DB) Plain[*sql.Tx] { return plainSQL{db} }

type plainSQL struct{ db *sql.DB }

func (p plainSQL) Begin(ctx context.Context) (*sql.Tx, error) { return p.db.BeginTx(ctx, nil) }

func (p plainSQL) Exec(ctx context.Context, tx *sql.Tx, statement string) error {
	_, err := tx.ExecContext(ctx, statement)
	return err
}

func (p plainSQL) Count(ctx context.Context, tx *sql.Tx, query string) (n int, err error) {
	err = tx.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (p plainSQL) Commit(_ context.Context, tx *sql.Tx) error   { return tx.Commit() }
func (p plainSQL) Rollback(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }
