// SPDX-License-Identifier: Apache-2.0

//go:build !mattn

package main

import (
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"
)

// sqliteDrivers are those that can be linked into one program: ncruces and
// mattn register one name. Build with the tag mattn, and a C compiler, for the other.
var sqliteDrivers = []sqliteDriver{modernc, {
	name: "sqlite3", module: "ncruces",
	options: "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)",
}}
