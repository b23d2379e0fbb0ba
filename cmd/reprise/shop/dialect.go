// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	_ "modernc.org/sqlite"             // the driver of SQLite

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	repmysql "github.com/reprise-go/reprise/store/mysql"
	"github.com/reprise-go/reprise/store/postgres"
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
	// events are the tables that events are in, waiting, held or delivered.
	events []string

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

// serverConnections is how many connections a shop has to a database server at
// most. Six shops of that size fit under PostgreSQL's usual limit of 100. More
// would not be faster: a request that waits for a connection holds nothing.
const serverConnections = 16

var sqliteDialect = &dialect{
	title: "SQLite", sqlDriver: "sqlite",
	library: (*sqlite.Driver)(nil),
	open: func(ctx context.Context, db *sql.DB) (driver, error) {
		return sqlite.New(ctx, db, &sqlite.Options{DeliveredRetention: keepEvents})
	},
	insertNew: `INSERT`, orNothing: ` ON CONFLICT DO NOTHING`,
	contains: `instr(data, ?) > 0`,
	events:   []string{"reprise_outbox", "reprise_outbox_hold"},
	hasTable: `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`,
	version:  `SELECT sqlite_version()`,
	advice:   func(error) string { return "" },
}

var postgresDialect = &dialect{
	title: "PostgreSQL", sqlDriver: "pgx",
	library: (*postgres.Driver)(nil),
	open: func(ctx context.Context, db *sql.DB) (driver, error) {
		return postgres.New(ctx, db, &postgres.Options{DeliveredRetention: keepEvents})
	},
	connections: serverConnections,
	numbered:    true,
	forUpdate:   ` FOR UPDATE`,
	insertNew:   `INSERT`, orNothing: ` ON CONFLICT DO NOTHING`,
	contains:   `position(?::bytea IN data) > 0`,
	events:     []string{"reprise_outbox"},
	hasTable:   `SELECT count(*) FROM pg_class WHERE relname = ? AND relkind = 'r' AND pg_table_is_visible(oid)`,
	lockSchema: `SELECT 1 FROM pg_advisory_xact_lock(hashtextextended('shop_migration', 0))`,
	version:    `SELECT current_setting('server_version')`,
	advice: func(err error) string {
		e, ok := errors.AsType[*pgconn.PgError](err)
		if !ok {
			return ""
		}
		switch e.Code {
		case "28P01", "28000":
			return adviceLogin
		case "3D000":
			return adviceNoDatabase
		case "42501":
			return advicePermission
		case "25006":
			return adviceReadOnly
		case "53300":
			return adviceConnections
		}
		return ""
	},
}

var mysqlDialect = &dialect{
	title: "MySQL", sqlDriver: "mysql",
	library: (*repmysql.Driver)(nil),
	open: func(ctx context.Context, db *sql.DB) (driver, error) {
		return repmysql.New(ctx, db, &repmysql.Options{DeliveredRetention: keepEvents})
	},
	connections: serverConnections,
	forUpdate:   ` FOR UPDATE`,
	// The values are checked and fit, so that all there is to ignore is the row
	// that is there already.
	insertNew:    `INSERT IGNORE`,
	contains:     `instr(data, ?) > 0`,
	events:       []string{"reprise_outbox"},
	hasTable:     `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?`,
	lockSchema:   `SELECT GET_LOCK(SHA1(CONCAT(DATABASE(), '/shop_migration')), 60)`,
	unlockSchema: `DO RELEASE_LOCK(SHA1(CONCAT(DATABASE(), '/shop_migration')))`,
	version:      `SELECT VERSION()`,
	advice: func(err error) string {
		e, ok := errors.AsType[*mysql.MySQLError](err)
		if !ok {
			return ""
		}
		switch e.Number {
		case 1045, 1698:
			return adviceLogin
		case 1049:
			return adviceNoDatabase
		case 1044, 1142, 1227, 1370:
			return advicePermission
		case 1290, 1792, 1836:
			return adviceReadOnly
		case 1040, 1203:
			return adviceConnections
		}
		return ""
	},
}

const (
	adviceLogin       = "check the user and the password"
	adviceNoDatabase  = "make the database first: CREATE DATABASE"
	advicePermission  = "let the user make and write tables in it, or run 'reprise migrate up' as one who may"
	adviceReadOnly    = "the server takes no writes: name the primary, not a replica"
	adviceConnections = "the server has no connection left: end some, or raise its limit"
)
