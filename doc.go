// SPDX-License-Identifier: Apache-2.0

// Package reprise holds the words of the protocol: keys, intents, outcomes,
// results, messages and errors, and nothing that touches a network or a disk.
//
// Every other package speaks these words. The client decides when to try again
// (retry, retryhttp), the server recognises the same intent (ledger,
// ledgerhttp), the store guards the invariants (store), and downstream systems
// are handed a stable identity (outbox, inbox). This package imports nothing of
// ours, nor net/http, nor database/sql; the numbered rules it cites, such as K1
// or L3, are those of spec/PROTOCOL.md.
package reprise
