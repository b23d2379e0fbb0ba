// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "modernc.org/sqlite" // registers "sqlite"
)

var modernc = sqliteDriver{
	name: "sqlite", module: "modernc",
	options: "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)",
}
