// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/store"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query string
		want  string // the first word of each statement
	}{
		{"", ""},
		{"  ;; ; ", ""},
		{"select 1", "SELECT"},
		{"SELECT 1; COMMIT", "SELECT COMMIT"},
		{"SELECT ';COMMIT;'", "SELECT"},
		{"SELECT 'it''s; COMMIT'; END", "SELECT END"},
		{`SELECT ";COMMIT", ` + "`;COMMIT`" + `, [;COMMIT]`, "SELECT"},
		{"SELECT 1 -- ; COMMIT\n; COMMIT", "SELECT COMMIT"},
		{"/* COMMIT; */ SELECT 1", "SELECT"},
		{"SELECT 1 /* open; COMMIT", "SELECT"},
		{"--\nCOMMIT", "COMMIT"},
		{"\ufeffCOMMIT", "COMMIT"},
		{"SELECT 1;\ufeffCOMMIT", "SELECT COMMIT"},
		{"SELECT $a('); COMMIT; --'", "SELECT COMMIT"},
		{"SELECT $a::b('x); ROLLBACK", "SELECT ROLLBACK"},
		{"SELECT a$b, :c, @d, #e; END", "SELECT END"},
		{"SELECT x'00'; END", "SELECT END"},
		{"SELECT 1 / 2 - -1; END", "SELECT END"},
		{"CREATE TRIGGER t AFTER INSERT ON o BEGIN SELECT CASE WHEN 1 THEN 2 END; SELECT 1; END; COMMIT", "CREATE COMMIT"},
		{"CREATE TEMP TRIGGER t AFTER INSERT ON o BEGIN SELECT 1; END", "CREATE"},
		{"CREATE TABLE trigger (a); COMMIT", "CREATE COMMIT"},
		{"WITH c AS (SELECT 1) INSERT INTO o SELECT * FROM c", "WITH"},
	} {
		var got []string
		for head := range statements(c.query) {
			got = append(got, head[0])
		}
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%q has the statements %q, want %q", c.query, got, want)
		}
	}
}

// TestL10 is rule L10: the transaction handle refuses COMMIT and ROLLBACK in
// every form, and poisons itself on the first error.
func TestL10(t *testing.T) {
	t.Parallel()

	for _, query := range []string{
		"COMMIT", "END", "end transaction", "ROLLBACK", "BEGIN", "SAVEPOINT s", "RELEASE reprise", "ROLLBACK TO reprise",
		"ATTACH 'x.db' AS x", "DETACH x", "VACUUM", "PRAGMA synchronous = OFF", "PRAGMA main.journal_mode = DELETE",
		"PRAGMA defer_foreign_keys = ON", "INSERT INTO orders (ref) VALUES ('a'); COMMIT",
		"/* first */ COMMIT", "-- first\nCOMMIT", "SELECT 1;;COMMIT", "\ufeffCOMMIT",
	} {
		t.Run("refuses "+query, func(t *testing.T) {
			t.Parallel()
			f := setup(t, nil)
			for name, say := range map[string]func(context.Context, *sql.Tx) error{
				"Exec":    func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, query); return err },
				"Query":   func(ctx context.Context, tx *sql.Tx) error { _, err := tx.QueryContext(ctx, query); return err },
				"Prepare": func(ctx context.Context, tx *sql.Tx) error { _, err := tx.PrepareContext(ctx, query); return err },
			} {
				var said, next error
				err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					if err := order(ctx, tx, name); err != nil {
						return err
					}
					said = say(ctx, tx)
					next = order(ctx, tx, "next")
					return nil
				})
				for _, err := range []error{err, said, next} {
					if !errors.Is(err, store.ErrTxMisuse) {
						t.Errorf("%s: error %v, want ErrTxMisuse", name, err)
					}
				}
			}
			if n := f.orders(); n != 0 {
				t.Errorf("%d orders were kept, want none", n)
			}
			if err := f.place("a"); err != nil {
				t.Errorf("the next request: %v", err)
			}
		})
	}

	t.Run("lets through what only reads the schema", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			for _, query := range []string{"PRAGMA table_info(orders)", "PRAGMA main.index_list(orders)", "EXPLAIN COMMIT"} {
				rows, err := tx.QueryContext(ctx, query)
				if err != nil {
					return err
				}
				if err := errors.Join(rows.Close(), rows.Err()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})

	for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		t.Run("refuses the method "+name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, nil)
			for _, then := range []func(*sql.Tx) error{end, func(tx *sql.Tx) error { _ = end(tx); return nil }} {
				err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(order(ctx, tx, "a"), then(tx))
				})
				if !errors.Is(err, store.ErrTxMisuse) {
					t.Errorf("error %v, want ErrTxMisuse", err)
				}
			}
			if n := f.orders(); n != 0 {
				t.Errorf("%d orders were kept, want none", n)
			}
		})
	}

	t.Run("refuses everything after the first error, and says what that was", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		if err := f.place("a"); err != nil {
			t.Fatal(err)
		}
		var first, next error
		err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			first = order(ctx, tx, "a")
			next = order(ctx, tx, "b")
			return nil
		})
		if code(first) != codeConstraint || errors.Is(first, store.ErrTxMisuse) {
			t.Errorf("the first error is %v, want SQLite's own", first)
		}
		for _, err := range []error{next, err} {
			if !errors.Is(err, store.ErrTxMisuse) || !errors.Is(err, first) {
				t.Errorf("error %v, want ErrTxMisuse around the first", err)
			}
		}
		if n := f.orders(); n != 1 {
			t.Errorf("%d orders, want 1", n)
		}
	})

	t.Run("refuses the transaction once its handler has returned", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		var kept *sql.Tx
		if err := f.Transact(t.Context(), func(_ context.Context, tx *sql.Tx) error { kept = tx; return nil }); err != nil {
			t.Fatal(err)
		}
		err := f.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if err := order(ctx, kept, "bad"); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("a statement on the last handler's transaction: %v, want sql.ErrTxDone", err)
			}
			if err := f.Enqueue(ctx, kept, message("bad", "")); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("a message on the last handler's transaction: %v, want sql.ErrTxDone", err)
			}
			return order(ctx, tx, "good")
		})
		if err != nil {
			t.Fatal(err)
		}
		f.kept("bad", 0)
		if n := f.orders("good"); n != 1 {
			t.Errorf("%d orders, want 1", n)
		}
	})

	t.Run("keeps a statement from running once its context is done, and the transaction from being kept", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		err := f.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := order(ctx, tx, "a"); err != nil {
				return err
			}
			cancel()
			_ = order(ctx, tx, "b")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if n := f.orders(); n != 0 {
			t.Errorf("%d orders were kept, want none", n)
		}
	})
}

// oracle is a database to ask whether a query ends a transaction.
func oracle(t testing.TB) func(query string) (ends, ran bool) {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	return func(query string) (ends, ran bool) {
		ctx := context.Background()
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		defer func() { _, _ = conn.ExecContext(ctx, "ROLLBACK") }()
		if _, err := conn.ExecContext(ctx, "DROP TABLE IF EXISTS o; BEGIN; CREATE TABLE o (a)"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(ctx, query); err != nil {
			return false, false
		}
		_, err = conn.ExecContext(ctx, "BEGIN")
		return err == nil || !strings.Contains(err.Error(), "within a transaction"), true
	}
}

// FuzzRefuse asks SQLite itself: whatever passes the guard must not end the
// transaction, unless SQLite reports an error, which poisons it.
func FuzzRefuse(f *testing.F) {
	for _, seed := range []string{
		"COMMIT", "SELECT 1; COMMIT", "SELECT '; COMMIT", "/**/COMMIT", "\ufeffEND", "SELECT $a('); COMMIT; --'",
		"CREATE TRIGGER t AFTER INSERT ON o BEGIN SELECT 1; END; COMMIT", "CREATE TEMP TRIGGER t BEGIN; END; END",
		"SELECT x';COMMIT", "SELECT a[;COMMIT]", "SELECT `a``;COMMIT`", "SELECT 1--\x00\n;COMMIT", "EXPLAIN COMMIT;END",
		"SAVEPOINT a", "SELECT :a(;COMMIT;)", "SELECT /*/ ; COMMIT", "/*;COMMIT", "-- \r;COMMIT", "SELECT 1;\v COMMIT",
		"CREATE TRIGGER t AFTER INSERT ON o BEGIN SELECT 1; END/**/; ROLLBACK", "pragma_x", "COMMIT\x00", "SELECT 1\x00;COMMIT",
	} {
		f.Add(seed)
	}
	ask := oracle(f)
	f.Fuzz(func(t *testing.T, query string) {
		if refuse(query) != nil || strings.Contains(strings.ToUpper(query), "RECURSIVE") {
			return
		}
		if ends, _ := ask(query); ends {
			t.Errorf("%q passed the guard and ended the transaction", query)
		}
	})
}

// TestRefuseHidden asks the same of queries that are made to be misread: COMMIT
// and semicolons in and between literals, identifiers, comments and triggers.
func TestRefuseHidden(t *testing.T) {
	t.Parallel()
	ask := oracle(t)
	nasty := rapid.StringMatching(`([;'"` + "`" + `\[\]\-/*$(): \n]|COMMIT|END|\x{feff}|a){0,6}`)
	without := func(s string, stops ...string) string {
		for _, stop := range stops {
			s = strings.ReplaceAll(s, stop, "")
		}
		return s
	}
	piece := rapid.Custom(func(t *rapid.T) string {
		s := nasty.Draw(t, "nasty")
		return rapid.SampledFrom([]string{
			"SELECT '" + strings.ReplaceAll(s, "'", "''") + "'",
			"SELECT 1 AS \"" + strings.ReplaceAll(s, `"`, `""`) + "\"",
			"SELECT 1 AS `" + strings.ReplaceAll(s, "`", "``") + "`",
			"SELECT 1 AS [" + without(s, "]") + "]",
			"/*" + without(s, "*/") + "*/",
			"--" + without(s, "\n") + "\n",
			"CREATE TRIGGER t AFTER INSERT ON o BEGIN SELECT '" + strings.ReplaceAll(s, "'", "''") + "'; END",
			"SELECT CASE WHEN 1 THEN 2 END",
			"COMMIT", "\ufeffEND", ";", s,
		}).Draw(t, "piece")
	})
	ended, refused, passed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		query := strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(t, "pieces"), rapid.SampledFrom([]string{";", " ", "\n;"}).Draw(t, "between"))
		ends, ran := ask(query)
		switch err := refuse(query); {
		case err == nil && ends:
			t.Errorf("%q passed the guard and ended the transaction", query)
		case err == nil && ran:
			passed++
		case err != nil && ends:
			ended++
		case err != nil:
			refused++
		}
	})
	t.Logf("%d passed and ran, %d were refused rightly, %d out of caution", passed, ended, refused)
	if ended == 0 || passed == 0 {
		t.Errorf("the guard let %d queries pass, stopped %d that end a transaction and %d others: nothing was shown", passed, ended, refused)
	}
}
