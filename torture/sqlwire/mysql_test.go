// SPDX-License-Identifier: Apache-2.0

package sqlwire_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

// openMySQL opens one connection.
func openMySQL(t *testing.T, dsn, parameters string) *sql.DB {
	t.Helper()
	db := must(sql.Open("mysql", dsn+parameters))(t)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// texts returns the rows of a query for one text.
func texts(t *testing.T, db *sql.DB, query string, args ...any) (got []string) {
	t.Helper()
	r := must(db.QueryContext(t.Context(), query, args...))(t)
	defer r.Close()
	for {
		for r.Next() {
			var s string
			if err := r.Scan(&s); err != nil {
				t.Fatal(err)
			}
			got = append(got, s)
		}
		if !r.NextResultSet() {
			break
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// What a client can do with MariaDB it can do through the proxy.
func TestMySQLPass(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDBDatabase(t)
	_, through := listen(t, sqlwire.MySQL, dsn)
	for _, parameters := range []string{"", "?multiStatements=true&interpolateParams=true"} {
		t.Run("with parameters "+parameters, func(t *testing.T) {
			db := openMySQL(t, through, parameters)
			must(db.Exec("CREATE OR REPLACE TABLE t (x VARCHAR(20) UNIQUE)"))(t)
			must(db.Exec("INSERT INTO t VALUES (?), (?)", "a", "b"))(t)
			if got := texts(t, db, "SELECT x FROM t WHERE x >= ? ORDER BY x", "a"); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("got %q", got)
			}
			large := strings.Repeat("x", 1<<20)
			if got := texts(t, db, "SELECT ? FROM seq_1_to_3", large); !slices.Equal(got, []string{large, large, large}) {
				t.Errorf("got %d rows", len(got))
			}
			_, err := db.Exec("INSERT INTO t VALUES (?)", "a")
			if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1062 {
				t.Errorf("got %v", err)
			}
			s := must(db.Prepare("SELECT COUNT(*) FROM t WHERE x > ?"))(t)
			defer s.Close()
			var n int
			if err := s.QueryRow("a").Scan(&n); err != nil || n != 1 {
				t.Errorf("got %d, %v", n, err)
			}
			if err := db.Ping(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("several results", func(t *testing.T) {
		db := openMySQL(t, through, "?multiStatements=true")
		must(db.Exec("CREATE TABLE u (x INT)"))(t)
		got := texts(t, db, "SELECT 'a' UNION SELECT 'b'; SELECT 'c'")
		if !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("got %q", got)
		}
		must(db.Exec("START TRANSACTION; INSERT INTO u VALUES (1); INSERT INTO u VALUES (2); COMMIT"))(t)
		_, err := db.Exec("INSERT INTO u VALUES (3); SELECT nonsense; INSERT INTO u VALUES (4)")
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1054 {
			t.Errorf("got %v", err)
		}
		if got := texts(t, db, "SELECT x FROM u ORDER BY x"); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a procedure, which has a result and an end", func(t *testing.T) {
		db := openMySQL(t, through, "")
		must(db.Exec("CREATE PROCEDURE p() BEGIN SELECT 'a'; SELECT 'b'; END"))(t)
		if got := texts(t, db, "CALL p()"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a file that the server asks for", func(t *testing.T) {
		db := openMySQL(t, through, "")
		must(db.Exec("CREATE TABLE v (x VARCHAR(20))"))(t)
		mysql.RegisterReaderHandler("sqlwire", func() io.Reader { return strings.NewReader("a\nb\n") })
		must(db.Exec("LOAD DATA LOCAL INFILE 'Reader::sqlwire' INTO TABLE v"))(t)
		if got := texts(t, db, "SELECT x FROM v ORDER BY x"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("users with and without the right password", func(t *testing.T) {
		admin := openMySQL(t, dsn, "")
		must(admin.Exec("CREATE OR REPLACE USER 'sqlwire'@'%' IDENTIFIED BY 'secret'"))(t)
		defer func() { must(admin.Exec("DROP USER 'sqlwire'@'%'"))(t) }()
		for password, ok := range map[string]bool{"secret": true, "wrong": false} {
			c := must(mysql.ParseDSN(through))(t)
			c.User, c.Passwd, c.DBName = "sqlwire", password, ""
			if err := openMySQL(t, c.FormatDSN(), "").Ping(); (err == nil) != ok {
				t.Errorf("with the password %q: %v", password, err)
			}
		}
	})
}

// The boundaries of a transaction, with prepared statements and with texts.
func TestMySQLBoundaries(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDBDatabase(t)
	must(openMySQL(t, dsn, "").Exec("CREATE TABLE t (x VARCHAR(99))"))(t)
	for parameters, want := range map[string][]string{
		"": {
			"before CONNECT", "after CONNECT", "before START TRANSACTION", "after START TRANSACTION",
			"before PREPARE INSERT INTO t VALUES (?)", "after PREPARE INSERT INTO t VALUES (?)",
			"before INSERT INTO t VALUES (?)", "after INSERT INTO t VALUES (?)", "before COMMIT", "after COMMIT",
		},
		"?interpolateParams=true": {
			"before CONNECT", "after CONNECT", "before START TRANSACTION", "after START TRANSACTION",
			"before INSERT INTO t VALUES ('x')", "after INSERT INTO t VALUES ('x')", "before COMMIT", "after COMMIT",
		},
	} {
		p, through := listen(t, sqlwire.MySQL, dsn)
		got := record(t, p)
		if err := insertMySQL(t, through+parameters, "x"); err != nil {
			t.Error(err)
		}
		samePoints(t, got(), want)
	}
}

// Each kind of fault: what the client is told, and what the server keeps.
func TestMySQLFaults(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDBDatabase(t)
	direct := openMySQL(t, dsn, "")
	must(direct.Exec("CREATE TABLE t (x VARCHAR(99))"))(t)
	number := func(want uint16) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*mysql.MySQLError](err)
			return ok && e.Number == want
		}
	}
	broken := func(err error) bool { _, ok := errors.AsType[*mysql.MySQLError](err); return err != nil && !ok }
	for _, row := range []struct {
		name  string
		when  crashpoint.When
		at    string
		fault sqlwire.Fault
		kept  bool
		err   func(error) bool
	}{
		{"COMMIT never arrives", crashpoint.Before, "COMMIT", sqlwire.Fault{Kind: sqlwire.Reset}, false, broken},
		{"the answer to COMMIT is lost", crashpoint.After, "COMMIT", sqlwire.Fault{Kind: sqlwire.Reset}, true, broken},
		{"the server hangs up after COMMIT", crashpoint.After, "COMMIT", sqlwire.Fault{Kind: sqlwire.Close}, true, broken},
		{"COMMIT fails the certification", crashpoint.Before, "COMMIT", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.Deadlock}, false, number(1213)},
		{"the server shuts down after COMMIT", crashpoint.After, "COMMIT", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.ServerShutdown}, true, number(1053)},
		{"a statement waits too long", crashpoint.Before, "INSERT INTO t VALUES (?)", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.LockWaitTimeout}, false, number(1205)},
		{"a transaction finds no primary", crashpoint.Before, "START TRANSACTION", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.ReadOnlyServer}, false, number(1290)},
		{"a node without its cluster", crashpoint.Before, "CONNECT", sqlwire.Fault{Kind: sqlwire.Answer, Error: sqlwire.NotInCluster}, false, number(1047)},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, through := listen(t, sqlwire.MySQL, dsn)
			p.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
				if at.When == row.when && at.Statement == row.at {
					return row.fault
				}
				return sqlwire.Fault{}
			})
			if err := insertMySQL(t, through, row.name); !row.err(err) {
				t.Errorf("the client saw %v", err)
			}
			if kept := len(texts(t, direct, "SELECT x FROM t WHERE x = ?", row.name)) == 1; kept != row.kept {
				t.Errorf("the row is kept: %v, want %v", kept, row.kept)
			}
			if n := p.Fired()[row.fault.Kind]; n != 1 {
				t.Errorf("the fault fired %d times, want 1", n)
			}
		})
	}
}

// insertMySQL inserts a row in a transaction.
func insertMySQL(t *testing.T, dsn, x string) error {
	t.Helper()
	db := must(sql.Open("mysql", dsn))(t)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("INSERT INTO t VALUES (?)", x); err != nil {
		return err
	}
	return tx.Commit()
}

// What an error leaves of the transaction is what the server leaves: a deadlock
// ends it, and what follows commits by itself; a lock that is waited for too long
// takes back one statement.
func TestMySQLTransactionAfterAnError(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDBDatabase(t)
	direct := openMySQL(t, dsn, "")
	must(direct.Exec("CREATE TABLE t (x VARCHAR(99))"))(t)
	for _, row := range []struct {
		fault sqlwire.ServerError
		kept  []string
	}{
		{sqlwire.Deadlock, []string{"third"}},
		{sqlwire.LockWaitTimeout, nil},
	} {
		p, through := listen(t, sqlwire.MySQL, dsn)
		p.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
			if at.When == crashpoint.Before && strings.Contains(at.Statement, "second") {
				return sqlwire.Fault{Kind: sqlwire.Answer, Error: row.fault}
			}
			return sqlwire.Fault{}
		})
		db := openMySQL(t, through, "?multiStatements=true")
		must(db.Exec("START TRANSACTION; INSERT INTO t VALUES ('first')"))(t)
		_, err := db.Exec("INSERT INTO t VALUES ('second')")
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != row.fault.Number {
			t.Errorf("got %v", err)
		}
		must(db.Exec("INSERT INTO t VALUES ('third')"))(t)
		if got := texts(t, direct, "SELECT x FROM t ORDER BY x"); !slices.Equal(got, row.kept) {
			t.Errorf("after %d others see %q, want %q", row.fault.Number, got, row.kept)
		}
		must(db.Exec("ROLLBACK"))(t)
		must(direct.Exec("DELETE FROM t"))(t)
	}
}
