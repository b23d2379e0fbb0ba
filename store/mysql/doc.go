// SPDX-License-Identifier: Apache-2.0

// Package mysql keeps ledger, outbox and inbox in MariaDB (10.6 or later), in
// MySQL (8.0 or later) or in a MariaDB Galera cluster, by database/sql.
//
// It imports no driver; bring github.com/go-sql-driver/mysql, with which it is
// tested on MariaDB 10.11 and Galera 4:
//
//	db, err := sql.Open("mysql", "shop@tcp(db:3306)/shop?multiStatements=true&interpolateParams=true")
//	d, err := mysql.New(ctx, db, nil)
//	err = migrate.Up(ctx, d)
//
// # The DSN
//
// multiStatements lets the driver send several statements as one message: the
// claim in front of the handler's first statement; the result, the messages and
// COMMIT behind its last. Then a keyed request takes two round trips where the
// bare transaction takes three. interpolateParams is needed beside it, because a
// prepared statement can't travel with others; the handler's arguments are then
// quoted by go-sql-driver. What multiStatements makes worse is an injection that
// a handler already has. Without the two everything works, and every statement
// takes a round trip of its own.
//
// The driver changes no setting of a connection, and depends on two, which New
// checks: autocommit must be on, and the isolation level of the session may be any
// but READ UNCOMMITTED, at which a look-up could answer with what is never committed.
// (Transactions of the driver's say READ COMMITTED for themselves.) The SQL mode, the
// time zone, the character set, parseTime and clientFoundRows don't matter. A
// readTimeout and a writeTimeout let a request get away from a server that has fallen
// silent.
//
// # What it costs
//
// A keyed request writes two rows, its claim and its result, and one for each
// event, and changes none of them afterwards. A row that grows when it is completed
// costs more than it seems: claims of the same moment are neighbours, the page
// overflows and is split, and everybody waits for it. The claim and the result are
// one row in the other stores. Here they were, and the transaction took 1.6 times the
// server's time and 1.7 times the log (docs/adr/0009).
//
// # Durability
//
// A commit is as durable as the server makes it: innodb_flush_log_at_trx_commit=1
// (and sync_binlog=1 where there is a binary log), or a cluster that does not lose
// all of its nodes at once. A replica that is promoted without having received a
// commit does not know the key either.
//
// # Handlers
//
// A handler receives a genuine *sql.Tx at READ COMMITTED, with the limits of rule
// L10: it can't be committed or rolled back by the handler, and after the first
// error of any statement every further one is refused and the attempt fails. So
// a handler that expects a duplicate doesn't provoke it: it looks first, or says ON
// DUPLICATE KEY UPDATE. Only statements that read or write rows are let through
// (SELECT, INSERT, UPDATE, DELETE, REPLACE, WITH, and a few that only tell),
// because MySQL commits behind the back of most others, and of a procedure that
// does so. Tables must be transactional: a row in a MyISAM table stays.
//
// InnoDB answers a conflict in two ways. After a deadlock (1213) the transaction is
// gone and the connection would commit each further statement by itself; after a
// wait for a lock that lasted too long (1205) only the statement is gone, and the
// rest would be committed without it. Here both end the transaction, nothing more
// is sent on it, and the whole work is run again by the ledger.
//
// # Galera
//
// Nodes don't see each other's locks. Two attempts at one intent on two nodes may
// both run; one of them is refused at COMMIT, with a deadlock, and finds the
// other's record when it is run again. Look-ups wait until their node has applied
// what was committed before (wsrep_sync_wait). A repeat on another node can't be told
// from one with other content while the first is in flight; it is refused at
// COMMIT at the latest.
package mysql
