// SPDX-License-Identifier: Apache-2.0

// Package sqlite keeps ledger, outbox and inbox in a SQLite file: the embedded
// default, for one host. Several processes may share the file.
//
// It imports no SQLite driver; bring one. It is tested with modernc.org/sqlite,
// which needs no C compiler:
//
//	db, err := sql.Open("sqlite", "shop.db")
//	d, err := sqlite.New(ctx, db, nil)
//	err = migrate.Up(ctx, d)
//
// # Durability
//
// New sets and verifies journal_mode=WAL and synchronous=FULL on the one
// connection it writes through, and refuses a database that can't have them:
// with synchronous=NORMAL an acknowledged commit is lost when the power is, and
// a relay may have published its event before.
//
// # The log
//
// Commits go to a write-ahead log beside the file, which has to begin anew from
// time to time. SQLite does that when it writes and nobody reads from the log at
// that moment; beside readers that never pause, it grows without end. The driver
// sees to it by itself (Options.LogSize): it writes the log back beside the
// writers, and then lets writers and its own reads wait for the few milliseconds
// that the rest takes. COMMIT itself never writes back. A transaction or an open
// *sql.Rows of yours on the same file keeps the log from beginning anew for as
// long as it lasts: writers go on, and the file of the log grows by what they
// write; Stats says since when. When it has gone, the file is cut off again. So
// read in pages, and close what you have read. Don't set synchronous=OFF in the
// name of the database: a connection that writes the log back without syncing
// loses what others have committed, and New refuses it.
//
// # Group commit
//
// SQLite has one writer. Requests that wait for it at the same moment share one
// transaction, each in a savepoint of its own, and one fsync; none is answered
// before the shared COMMIT. One that fails or panics is rolled back alone.
// A handler that dawdles holds up every other writer, so it must not wait for
// anything but the transaction it is given: what is slow belongs before the
// keyed work, or into a staged run. A statement of its transaction that runs on is
// interrupted when the context of the request ends; package ledger gives it one
// with a deadline. If SQLite rolls back the shared transaction with it, which it
// does for a write, the others run again.
//
// # Handlers
//
// A handler receives a genuine *sql.Tx on the shared connection, with the limits
// of rule L10: it can't be committed or rolled back by the handler, statements
// such as COMMIT, SAVEPOINT, PRAGMA and ATTACH are refused, and after the first
// error of any statement every further one is refused and the attempt fails. So
// a handler that expects a unique violation doesn't provoke it: it looks first,
// or says ON CONFLICT. Statements that were prepared on the *sql.DB belong to
// other connections and can't be used through (*sql.Tx).Stmt; prepare them on the
// transaction. Writing through the *sql.DB from inside a handler waits for the
// handler itself and ends as "database is locked".
package sqlite
