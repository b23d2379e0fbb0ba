// SPDX-License-Identifier: Apache-2.0

// Package pg is what the two PostgreSQL drivers share: the schema, the SQL, how
// rows and errors are read, and everything that is not the hot path, written once
// against a small seam (Conn and Pool). A driver keeps what depends on its client
// library: how a handler's transaction is lent and guarded, and how it is begun
// and committed in few round trips. Programs that use different drivers may share
// one database.
//
// The schema uses xid8 and pg_snapshot, and a claim watches its client, so the server is
// PostgreSQL 14 or later.
package pg
