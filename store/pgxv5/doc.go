// SPDX-License-Identifier: Apache-2.0

// Package pgxv5 keeps the ledger, the outbox and the inbox in PostgreSQL through
// pgx v5, in few round trips.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	driver, err := pgxv5.New(ctx, pool, nil)
//	err = migrate.Up(ctx, driver)
//	l, err := ledger.New(driver, nil)
//	answer, err := l.Do(ctx, intent, ledger.Options{}, func(ctx context.Context, tx pgx.Tx) (reprise.Result, error) {
//		_, err := tx.Exec(ctx, "INSERT INTO orders …")
//		…
//	})
//
// # Round trips
//
// BEGIN and the claim are held back and go out in front of the handler's first
// statement, and the result, the messages and COMMIT go out together: a handler
// with one statement takes two round trips, where the same transaction by hand
// takes three. A handler whose intent turns out to have a record has begun to run,
// so its first statement fails: the server skips it, because the claim in front of
// it has raised an error. Whatever the handler then returns is replaced by the
// record's answer. Work that must not even begin for a repeat belongs behind the
// first statement.
//
// A handler that only writes puts its statements into a batch and calls Queue;
// then everything takes one round trip, in which the record comes first and claims
// the intent. Such a handler is never told that there is a record: it has returned
// by then. What a proxy still holds back when Resolve has found nothing comes too
// late: Resolve has written that down, for a day.
//
// # The sessions of the pool
//
// The first transaction on a connection sets client_connection_check_interval to
// 50 ms for its session, so that the server rolls back what a dead process has left
// running. Behind a pooler each claim sets it for its own transaction, which costs
// it about a tenth.
//
// # The transaction of a handler
//
// It is a whole pgx.Tx, so that sqlc and everything else that asks for Exec, Query,
// QueryRow, SendBatch or CopyFrom works unchanged. It refuses Commit and Rollback,
// and their SQL; savepoints are set by Begin. After the first error it refuses
// everything else, unless a savepoint is rolled back. Conn returns a connection
// that is closed, because the real one could end the transaction and outlives it:
// register types in the pool's AfterConnect. Once the handler has returned, nothing
// of it works any more, for goroutines that it left behind either.
//
// # What the database decides
//
// Two attempts at one intent are kept apart by an advisory lock, which is tried and
// never waited for, and in the end by a unique index. The answer to COMMIT, and to
// what goes out with it, is waited for 30 s; then the outcome is unknown. Times are the database's.
// store/postgres keeps the same tables by database/sql.
package pgxv5
