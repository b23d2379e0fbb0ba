// SPDX-License-Identifier: Apache-2.0

// Package ledger makes a server recognise an intent it has seen before, and
// execute it once.
//
// There are two modes over one record. In the atomic mode, [Ledger.Do], the
// claim, the business writes, the events and the stored result are one
// transaction: an error, a panic or the death of the process leaves nothing, and
// the next attempt runs at once (rules L1 to L15 of spec/PROTOCOL.md). In the
// staged mode, [Staged.Do], an operation calls other systems: its claim commits
// first, every call is frozen before its first byte is sent, and what a dead
// process left is taken up again by the next attempt or by [Ledger.Recover]
// (rules S1 to S8).
//
// The package knows neither HTTP nor any database: it stands on the seam in
// package store, and package ledgerhttp stands on it.
package ledger
