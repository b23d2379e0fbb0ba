// SPDX-License-Identifier: Apache-2.0

// Package store is the seam between the protocol and a database.
//
// Above it stand the concrete types that users hold: ledger.Ledger,
// outbox.Relay, inbox.Inbox. Below it stand the drivers: store/sqlite and its
// siblings. A driver implements Driver, four small interfaces over one
// transaction type, and proves itself with storetest.Run, which checks every
// rule of spec/PROTOCOL.md that storage must keep.
//
// TTx is the transaction type of the user's own database library, *sql.Tx for
// database/sql. Handlers receive exactly that, so that sqlc, ORMs and plain SQL
// work unchanged. The transaction that a handler receives belongs to the
// driver: it refuses COMMIT and ROLLBACK, and after the first error it refuses
// everything else too (rule L10).
//
// This package knows none of its users, and drivers know only this package and
// the words.
package store
