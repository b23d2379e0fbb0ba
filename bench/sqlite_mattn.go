// SPDX-License-Identifier: Apache-2.0

//go:build mattn

package main

import (
	_ "github.com/mattn/go-sqlite3" // registers "sqlite3"
)

// sqliteDrivers are those that can be linked into one program.
var sqliteDrivers = []sqliteDriver{modernc, {
	name: "sqlite3", module: "mattn",
	options: "?_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000",
}}
