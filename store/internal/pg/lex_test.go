// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"strings"
	"testing"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"SELECT 1", "INSERT INTO t VALUES ('COMMIT'); SELECT ';COMMIT'", "SELECT $$;COMMIT;$$, $a$;$b$ COMMIT;$a$",
		`SELECT E'\'; COMMIT; --'`, `SELECT ";COMMIT"`, "SELECT 1 -- ; COMMIT", "/* ; COMMIT /* ; */ ; COMMIT */ SELECT 1",
		"SET LOCAL statement_timeout = 0", "SET CONSTRAINTS ALL DEFERRED", "SELECT a$1$ FROM t", "UPDATE t SET a = 1",
		"WITH x AS (SELECT 1) SELECT * FROM x", "SELECT $1; SELECT $2", "DO $$ BEGIN PERFORM 1; END $$", "", ";;", "SELECT 'é'; SELECT 1",
		"LOCK TABLE t", "DECLARE c CURSOR FOR SELECT 1", "CALL p()", "SELECT ' it''s; COMMIT'", "commits", "ENDS", "SELECT U&'d\\0061t; COMMIT'",
	} {
		if err := Refuse(query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{
		"COMMIT", "commit;", "\n\t Commit ", "-- c\nCOMMIT", "--c\rCOMMIT", "/* c */ COMMIT", "COMMIT WORK", "END", "ROLLBACK", "ABORT",
		"; COMMIT", "SELECT 1; COMMIT", "SELECT ';'; COMMIT", "SELECT $$;$$; COMMIT", "SELECT $a$ $b$ $a$; COMMIT", `SELECT '\'; COMMIT`,
		// With standard_conforming_strings off, what looks like a string is not.
		`SELECT '\''; COMMIT; --'`, "SELECT E'a'\n'\\''; COMMIT; --'", `SELECT E'\\'; COMMIT`, `SELECT e'it\'s'; COMMIT`,
		"SELECT 1e'\\''; COMMIT --'", "/* a /* b */ */ COMMIT", "SELECT \"a\"\"\"; COMMIT", "SELECT a$$; COMMIT; --$$",
		"BEGIN", "START TRANSACTION", "SAVEPOINT a", "RELEASE a", "ROLLBACK TO a", "PREPARE TRANSACTION 'x'", "PREPARE p AS SELECT 1",
		"DEALLOCATE ALL", "DISCARD ALL", "LISTEN a", "RESET ALL", "SET search_path = x", "SET SESSION a = 1", "SET TRANSACTION READ ONLY",
		"SET ROLE x", "SET LOCAL standard_conforming_strings = off", "SET LOCAL reprise.token = ''", "COPY t FROM STDIN", "LOAD 'x'",
		"SELECT $1; ROLLBACK", "SELECT '" + strings.Repeat("x", 1<<16) + "'; COMMIT", "\fCOMMIT", "/**/COMMIT", "SELECT B'0'; COMMIT", "SELECT U&'\\'; COMMIT",
	} {
		if Refuse(query) == nil {
			t.Errorf("%q was not refused", query)
		}
	}
}
