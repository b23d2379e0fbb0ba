// SPDX-License-Identifier: Apache-2.0

// Package dbserver starts throw-away database servers: PostgreSQL, a synchronous
// PostgreSQL pair, MariaDB, a Galera cluster, and PgBouncer.
//
// A server is a child process on a private port of 127.0.0.1, with a private
// directory for its data and its socket. As root it is started as the user whom
// its Debian package brings along, because PostgreSQL and PgBouncer refuse root.
// It ends with this process, even when this process is killed, and Stop removes
// what it left. A binary that is missing is an error that names the Debian
// package to install; [Missing] lists them all.
//
// The package links no database driver: it talks to its servers by psql and
// mariadb. It reports errors and knows no tests; those use package dbtest.
package dbserver
