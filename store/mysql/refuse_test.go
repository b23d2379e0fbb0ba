// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"slices"
	"strings"
	"testing"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"SELECT 1",
		"  select 1;",
		"(SELECT 1) UNION (SELECT 2)",
		"INSERT INTO t VALUES (?), ('; COMMIT'), (\"; COMMIT\"), (`; COMMIT`)",
		"INSERT INTO t VALUES ('it''s; COMMIT')",
		"/* COMMIT */ UPDATE t SET a = 1 -- ; COMMIT",
		"UPDATE t SET a = 1 # ; COMMIT\n, b = 2",
		"SELECT /*+ NO_MERGE(t) */ 1",
		"WITH x AS (SELECT 1) SELECT * FROM x",
		"DELETE FROM t; INSERT INTO t VALUES (1)",
		"SELECT 5--2",
		"REPLACE INTO t VALUES ('\\\\')",
		"SHOW TABLES",
		"",
	} {
		if err := refuse(query); err != nil {
			t.Errorf("%q: %v", query, err)
		}
	}
	for _, query := range []string{
		"COMMIT", "commit work", "ROLLBACK", "BEGIN", "START TRANSACTION", "SAVEPOINT a", "RELEASE SAVEPOINT a", "XA END 'x'",
		"SET autocommit = 1", "SET @a = 1, autocommit = 1", "SET STATEMENT max_statement_time = 1 FOR COMMIT",
		"CREATE TABLE t (a INT)", "CREATE TEMPORARY TABLE t (a INT)", "ALTER TABLE t ADD b INT", "DROP TABLE t", "TRUNCATE t", "RENAME TABLE a TO b",
		"LOCK TABLES t WRITE", "UNLOCK TABLES", "ANALYZE TABLE t", "GRANT SELECT ON t TO u", "FLUSH TABLES", "LOAD INDEX INTO CACHE t",
		"CALL p()", "PREPARE s FROM 'COMMIT'", "EXECUTE s", "EXECUTE IMMEDIATE 'COMMIT'", "USE other", "HANDLER t OPEN",
		"IF 1 THEN COMMIT; END IF", "l: BEGIN COMMIT; END", "KILL 1", "RESET QUERY CACHE",
		"; COMMIT", "SELECT 1; COMMIT", "SELECT 1;\n-- x\n/* y */ commit", "SELECT 1 /*!; COMMIT */", "/*!COMMIT*/", "/*M! COMMIT */", "/*!50000 COMMIT */",
		"SELECT 1; # x\nCOMMIT", "SELECT 1;--\x01\nCOMMIT",
		// Harmless if the backslash hides the quote, and not if it doesn't.
		`SELECT '\'; COMMIT; -- '`, `SELECT "\"; COMMIT; -- "`,
		// The same the other way round.
		`SELECT '\' AS a, '; COMMIT; -- '`,
	} {
		if err := refuse(query); err == nil {
			t.Errorf("%q was let through", query)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	got := split("-- one; two\nCREATE TABLE a (b INT); /* ; */\nINSERT INTO a VALUES (';');\n\nINSERT INTO a VALUES ('it''s') ; -- the end\n")
	want := []string{"CREATE TABLE a (b INT)", "INSERT INTO a VALUES (';')", "INSERT INTO a VALUES ('it''s')"}
	for i := range got {
		got[i] = strings.TrimSpace(got[i][strings.LastIndexAny(got[i], "\n/")+1:])
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	got := render("? ? ? ? ? ?", "a'\\\x00", []byte(nil), []byte{}, "", int64(-5), 7)
	if want := `0x61275c00 NULL '' '' -5 7`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
