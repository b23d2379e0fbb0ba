// SPDX-License-Identifier: Apache-2.0

// Package postgres keeps ledger, outbox and inbox in a PostgreSQL database, on
// database/sql. Its sibling store/pgxv5 does the same natively on pgx, with one
// round trip less; both use the same tables, and programs with either may share a
// database.
//
// It imports no database driver; bring one. It is tested with pgx:
//
//	db, err := sql.Open("pgx", "postgres://shop@db.internal/shop")
//	d, err := postgres.New(ctx, db, nil)
//	err = migrate.Up(ctx, d)
//
// # One transaction
//
// An attempt is BEGIN and the claim in one message, the handler's statements, the
// record, and the messages of the outbox with COMMIT in one message. Nothing is
// written before the record, so there is nothing in progress to recover: whatever
// ends the attempt, the server rolls it back and frees its lock at once; while a
// statement runs it looks every 50 ms whether its client still lives. The claim
// tries an advisory lock on the intent and looks for its record. Locks only save
// work; the unique index on the 16-byte id decides. The claim and the INSERT of a
// message are prepared by SQL in each session, under names that begin with reprise_.
//
// A COMMIT runs under no context that can end, and one whose answer is lost is
// store.ErrCommitUnknown; Resolve waits behind the lock until the transaction is
// over, and looks. What bounds the wait for a server that is silent is TCP: leave
// keep-alives on.
//
// # Handlers
//
// A handler receives a genuine *sql.Tx with the limits of rule L10: it can't be
// committed or rolled back by the handler; statements such as COMMIT, SAVEPOINT,
// PREPARE, LISTEN, COPY and SET without LOCAL are refused, because they would end the
// transaction or outlive it; and after the first error of any statement every
// further one is refused and the attempt fails, as PostgreSQL has it anyway. A
// handler that expects a unique violation says ON CONFLICT. A context that ends
// interrupts the handler's statement, and the connection is closed.
//
// Don't change settings of the session from inside functions that a handler calls:
// the connection goes back to the pool as they leave it.
//
// # Poolers and replicas
//
// PgBouncer in transaction mode works; with pgx and a PgBouncer before 1.21 say
// default_query_exec_mode=exec in the URL. Everything must go to the primary: New
// refuses a standby, and so does every write.
package postgres
