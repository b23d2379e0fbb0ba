// SPDX-License-Identifier: Apache-2.0

// Package sqltx hands out a genuine *sql.Tx whose transaction stays in the hands
// of the driver that lends it (rule L10).
//
// A handler wants *sql.Tx, because sqlc, ORMs and plain SQL do; but *sql.Tx has
// Commit and Rollback, remembers no error, and belongs to a connection of its
// own. So the raw driver connection is reached through (*sql.Conn).Raw, and a
// guarding driver.Conn around it is offered to database/sql as if it were a
// whole database. Every statement and every error passes the guard: it refuses
// to commit, refuses statements that would end the transaction behind its back,
// and after the first error refuses everything.
package sqltx
