// SPDX-License-Identifier: Apache-2.0

// Package sqlwire is a fault proxy for the wire protocols of PostgreSQL and of
// MySQL and MariaDB that knows where a statement ends.
//
// A boundary is a message that makes the server act and answer. The proxy reads
// it whole and asks a Plan what to do before the server sees it; then it reads
// the whole answer and asks again before the client sees that. So "COMMIT took
// effect and its answer was lost" is a certainty here and not a race, and so is
// "COMMIT never arrived", which looks the same to the client.
//
// Boundaries are numbered, and the rule of use is SQLite's own: fail at 1, then
// 2, then 3, until a run completes without a hit.
//
// In PostgreSQL a boundary is a simple Query, each Execute of a pipeline, the
// Sync that ends it, and the start of a session. An Execute has one side only:
// what is after it is before the next one, or before the Sync. In MySQL it is
// every command that has an answer, and the authentication of a session.
//
// The sides of a boundary and their names are those of package crashpoint, which
// does the same inside a database/sql driver, for databases that have no wire.
package sqlwire
