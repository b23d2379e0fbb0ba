// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// server is what the statements depend on.
type server struct {
	// mariadb tells MariaDB from MySQL.
	mariadb bool
	// galera says that commits are certified by a cluster: the loser of a conflict
	// learns of it at COMMIT, and a look-up sees another node's commits for certain
	// only if it waits for them.
	galera bool
	// multi says that several statements travel in one text. In a cluster none do:
	// a transaction that has lost to another node's is ended between two messages, and
	// within one the whole cluster waits for it.
	multi bool
}

// inspect asks the server, on one connection, for all that matters.
func inspect(ctx context.Context, db *sql.DB) (s server, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return s, fmt.Errorf("mysql: the database can't be reached: %w", err)
	}
	defer func() { _ = conn.Close() }()
	v := map[string]string{}
	err = record.Query(ctx, conn, func(row []driver.Value) error {
		c := record.Read(row)
		name := c.Text()
		v[name] = c.Text()
		return c.Err()
	}, "SHOW VARIABLES WHERE Variable_name IN ('version', 'autocommit', 'wsrep_on', 'log_bin', 'binlog_format', "+
		"'tx_isolation', 'transaction_isolation')")
	if err != nil {
		return s, fmt.Errorf("mysql: asking the server for its settings: %w", classify(err))
	}
	s.mariadb = strings.Contains(v["version"], "MariaDB")
	s.galera = v["wsrep_on"] == "ON"
	if err := s.check(v); err != nil {
		return s, err
	}
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return s, fmt.Errorf("mysql: asking the server for the database: %w", err)
	}
	if !database.Valid {
		return s, errors.New("mysql: the DSN names no database; put its name behind the slash")
	}
	_, err = conn.ExecContext(ctx, "DO 0; DO 0")
	s.multi = err == nil && !s.galera
	if err != nil && number(err) == 0 {
		return s, fmt.Errorf("mysql: the database can't be reached: %w", err)
	}
	return s, nil
}

// readUncommitted is a value of tx_isolation, which MySQL calls transaction_isolation.
const readUncommitted = "READ-UNCOMMITTED"

// check refuses what the protocol can't be kept with. Look-ups run at the level of
// the session, and each that asks for committed rows gets them at every level but one.
func (s server) check(v map[string]string) error {
	least := [2]int{8, 0}
	if s.mariadb {
		least = [2]int{10, 6}
	}
	major, rest, _ := strings.Cut(v["version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	have := [2]int{}
	have[0], _ = strconv.Atoi(major)
	have[1], _ = strconv.Atoi(minor)
	switch {
	case have[0] < least[0] || have[0] == least[0] && have[1] < least[1]:
		return fmt.Errorf("mysql: the server is %s; MariaDB 10.6 or MySQL 8.0 is the least", v["version"])
	case v["autocommit"] != "ON":
		return errors.New("mysql: the sessions don't autocommit, so that a look-up would begin a transaction and see an old state for as long as that lasts; " +
			"leave autocommit at its default in the DSN and on the server")
	case v["tx_isolation"] == readUncommitted || v["transaction_isolation"] == readUncommitted:
		return errors.New("mysql: the sessions' isolation level is READ-UNCOMMITTED, at which a look-up could answer with a result that is never committed; " +
			"leave tx_isolation (MariaDB) or transaction_isolation (MySQL) at its default in the DSN and on the server, or set it to READ-COMMITTED")
	case v["log_bin"] == "ON" && v["binlog_format"] == "STATEMENT":
		return errors.New("mysql: binlog_format is STATEMENT, which refuses writes at READ COMMITTED; set it to ROW or MIXED")
	case s.galera && !s.mariadb:
		return errors.New("mysql: a cluster of this server is not supported; MariaDB Galera is")
	}
	return nil
}

// begin starts a transaction. READ COMMITTED takes no locks on gaps, so that
// neither claims nor purges get into each other's way; and it lets a statement
// see what was committed while the one before it waited. In a cluster the
// transaction sees what was committed before it on any node.
func (s server) begin(statements ...string) []string {
	all := make([]string, 0, 3+len(statements))
	if s.galera {
		all = append(all, s.read("SELECT 0 INTO @reprise"))
	}
	all = append(all, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION")
	return append(all, statements...)
}

// beginLen is how many statements begin takes.
func (s server) beginLen() int { return len(s.begin()) }

// read makes a look-up see what was committed before it on any node.
func (s server) read(query string) string {
	if s.galera {
		return "SET STATEMENT wsrep_sync_wait = 1 FOR " + query
	}
	return query
}

// guarded is the status of a result, or NULL, which its column refuses, if the
// transaction that holds the claim has been ended behind the driver's back: no
// result is kept then. MariaDB says whether a transaction is open. That is the one
// with the claim, because a handler can't begin another: refuse lets no statement
// through that does, and none at all after an error. MySQL has to look for the claim
// itself, which takes the server as long as half of the INSERT.
func (s server) guarded(e store.Entry) string {
	if s.mariadb {
		return render("IF(LAST_INSERT_ID("+nowMicros+") > 0 AND @@in_transaction, ?, NULL)", e.Result.Status)
	}
	return render("IF(LAST_INSERT_ID("+nowMicros+") > 0, (SELECT ? FROM reprise_ledger WHERE id = ?), NULL)", e.Result.Status, e.ID[:])
}

// impatient makes a statement that changes one intent's row of table fail at once
// if another transaction holds that row, instead of waiting with a connection
// in its hand (rule L11). In MySQL a look that does the same goes before it.
func (s server) impatient(table string, id []byte, query string) []string {
	if s.mariadb {
		return []string{"SET STATEMENT innodb_lock_wait_timeout = 0 FOR " + query}
	}
	return []string{render("SELECT COUNT(*) FROM "+table+" WHERE id = ? INTO @reprise FOR UPDATE NOWAIT", id), query}
}
