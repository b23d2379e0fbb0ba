// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"io"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver of SQLite

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// dialect is all that the shop knows of a kind of database. Whatever is not here
// is the same text and the same code for each of them.
//
// Writers are alone in SQLite. In the others two transactions read the same row
// and both act on it, unless a handler locks the row that its decision hangs on,
// or decides and writes in one statement: see lockOrder and redeemCoupon.
type dialect struct {
	// title is the name of the product, for people.
	title string
	// sqlDriver is the name of the database/sql driver.
	sqlDriver string
	// library is the schema of the library, for those who want no more than to
	// read it: it has no database.
	library migrate.Database
	// open makes the library's driver.
	open func(context.Context, *sql.DB) (driver, error)
	// connections is how many a shop has at most; 0 for no limit.
	connections int

	// numbered says that parameters are $1, $2, ... instead of ?.
	numbered bool
	// forUpdate ends a SELECT whose rows nobody else may change until the
	// transaction ends.
	forUpdate string
	// insertNew and orNothing stand around an INSERT that does nothing where a row
	// of the same unique columns is.
	insertNew, orNothing string
	// contains is true where the bytes of the parameter stand in the column data.
	contains string

	// hasTable counts the tables of a name in the present database.
	hasTable string
	// lockSchema returns 1 when nobody else may migrate the shop's tables, and
	// unlockSchema ends that; empty where the transaction does either.
	lockSchema, unlockSchema string
	// version asks the server which one it is.
	version string
	// advice says what an error of the database means to the one who has to act;
	// empty if nothing more is known.
	advice func(error) string
}

// driver is the library's side of a database.
type driver interface {
	store.Driver[*sql.Tx]
	migrate.Database
	io.Closer
}

// bind writes the parameters of a query, each of them a ?, as the database wants
// them. The shop's texts have no other question mark.
func (d *dialect) bind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, more := strings.Cut(query, "?")
		b.WriteString(before)
		if !more {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// insertUnlessThere is an INSERT of what follows INTO, which does nothing where a
// row with the same unique columns is. RowsAffected tells.
func (d *dialect) insertUnlessThere(what string) string {
	return d.bind(d.insertNew + ` INTO ` + what + d.orNothing)
}

// product says which database it is, by what the server says of its version.
func (d *dialect) product(version string) string {
	title := d.title
	if strings.Contains(version, "MariaDB") {
		title = "MariaDB"
	}
	number, _, _ := strings.Cut(version, "-")
	number, _, _ = strings.Cut(number, " ")
	return title + " " + number
}

// keepEvents is how long an event stays in the outbox after its delivery, so that
// people can look at it and /effects can count it.
const keepEvents = 30 * 24 * time.Hour

var sqliteDialect = &dialect{
	title: "SQLite", sqlDriver: "sqlite",
	library: (*sqlite.Driver)(nil),
	open: func(ctx context.Context, db *sql.DB) (driver, error) {
		return sqlite.New(ctx, db, &sqlite.Options{DeliveredRetention: keepEvents})
	},
	insertNew: `INSERT`, orNothing: ` ON CONFLICT DO NOTHING`,
	contains: `instr(data, ?) > 0`,
	hasTable: `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`,
	version:  `SELECT sqlite_version()`,
	advice:   func(error) string { return "" },
}
