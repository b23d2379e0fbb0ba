// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/torture/crash"
)

// manual is a service that keeps its claims by hand, rightly or in one of the
// wrong ways that are seen in the wild.
type manual struct {
	db       *sql.DB
	postgres bool
	flaw     string
}

// The flaws, and by what the oracle knows each.
var flaws = map[string]string{
	// Nobody looks whether the order was executed.
	"no claim": "map[event:2 order:2]",
	// The claim commits before its work: a crash in between leaves it for ever.
	"claim in its own transaction": "stuck",
	// ... so it is deleted after an error, also one that was none.
	"claim deleted after an error": "map[claim:1 event:2 order:2]",
	// A COMMIT that was not answered counts as failed.
	"commit error is a failure": "refused (commit failed), but the effects are map[claim:1 event:1 order:1]",
	// What COMMIT says is not looked at.
	"commit error is ignored": "acknowledged, but the effects are map[]",
	// The event is written after COMMIT.
	"event after commit": "map[claim:1 order:1]",
}

// patient is no flaw: duplicates wait for the claim as long as it takes.
const patient = "patient"

const manualSchema = "CREATE TABLE orders (ref VARCHAR(64)); CREATE TABLE events (ref VARCHAR(64)); " +
	"CREATE TABLE claims (id VARCHAR(64) PRIMARY KEY, ref VARCHAR(64))"

func init() {
	for _, flaw := range append([]string{"", patient}, manualFlaws()...) {
		programs["manual/pgx "+flaw] = openManual("pgx", flaw)
		programs["manual/mysql "+flaw] = openManual("mysql", flaw)
	}
}

func manualFlaws() (names []string) {
	for name := range flaws {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func openManual(driver, flaw string) opener {
	return func(ctx context.Context, dsn string, _ *sql.DB) (crash.Program, error) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, err
		}
		return &manual{db: db, postgres: driver == "pgx", flaw: flaw}, db.PingContext(ctx)
	}
}

func (m *manual) Close() error { return m.db.Close() }

// statements of one kind in two dialects.
func (m *manual) sql(postgres, mysql string) string {
	if m.postgres {
		return postgres
	}
	return mysql
}

// execer is a transaction or a database.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// claim says whether the order is the caller's to execute.
func (m *manual) claim(ctx context.Context, e execer, o crash.Order) (bool, error) {
	r, err := e.ExecContext(ctx, m.sql("INSERT INTO claims VALUES ($1, '') ON CONFLICT DO NOTHING", "INSERT IGNORE INTO claims VALUES (?, '')"), o.Key)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// insert writes a row of the business.
func (m *manual) insert(ctx context.Context, e execer, table string, o crash.Order) error {
	_, err := e.ExecContext(ctx, "INSERT INTO "+table+m.sql(" VALUES ($1)", " VALUES (?)"), o.Ref)
	return err
}

// errReplay is for an order that was executed, and errBusy for one that somebody
// else executes.
var errReplay, errBusy, errCommit = errors.New("replay"), errors.New("somebody else is at work"), errors.New("commit failed")

// Attempt implements crash.Program.
func (m *manual) Attempt(ctx context.Context, o crash.Order) crash.Answer {
	if strings.HasPrefix(m.flaw, "claim ") {
		mine, err := m.claim(ctx, m.db, o)
		if err == nil && !mine {
			err = m.replay(ctx, m.db, o)
		}
		if err != nil {
			return m.answer(o, err)
		}
	}
	err := m.execute(ctx, o)
	if err == nil && m.flaw == "event after commit" {
		err = m.insert(ctx, m.db, "events", o)
	}
	if err != nil && m.flaw == "claim deleted after an error" {
		_, _ = m.db.ExecContext(ctx, "DELETE FROM claims WHERE id = "+m.sql("$1", "?"), o.Key)
	}
	return m.answer(o, err)
}

// execute is the one transaction.
func (m *manual) execute(ctx context.Context, o crash.Order) error {
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if m.flaw != patient {
		if _, err := tx.ExecContext(ctx, m.sql("SET LOCAL lock_timeout = 50", "SET innodb_lock_wait_timeout = 1")); err != nil {
			return err
		}
	}
	if m.flaw != "no claim" && !strings.HasPrefix(m.flaw, "claim ") {
		mine, err := m.claim(ctx, tx, o)
		if err == nil && !mine {
			err = m.replay(ctx, tx, o)
		}
		if err != nil {
			return err
		}
	}
	if err := m.insert(ctx, tx, "orders", o); err != nil {
		return err
	}
	if m.flaw != "event after commit" {
		if err := m.insert(ctx, tx, "events", o); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, m.sql("UPDATE claims SET ref = $1 WHERE id = $2", "UPDATE claims SET ref = ? WHERE id = ?"), o.Ref, o.Key); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil && m.flaw != "commit error is ignored" {
		return fmt.Errorf("%w: %w", errCommit, err)
	}
	return nil
}

// replay answers for a claim that is there.
func (m *manual) replay(ctx context.Context, e execer, o crash.Order) error {
	var ref string
	if err := e.QueryRowContext(ctx, "SELECT ref FROM claims WHERE id = "+m.sql("$1", "?"), o.Key).Scan(&ref); err != nil {
		return err
	}
	if ref == "" {
		return errBusy
	}
	return errReplay
}

func (m *manual) answer(o crash.Order, err error) crash.Answer {
	switch {
	case err == nil, errors.Is(err, errReplay):
		return crash.Answer{Outcome: reprise.Succeeded, Body: o.Ref}
	case errors.Is(err, errCommit) && m.flaw == "commit error is a failure":
		return crash.Answer{Outcome: reprise.NotProcessed, Detail: errCommit.Error()}
	case errors.Is(err, errCommit), errors.Is(err, errBusy), m.flaw != "":
		return crash.Answer{Detail: err.Error()}
	}
	return crash.Answer{Outcome: reprise.NotProcessed, Detail: err.Error()}
}

// manualSubject is a manual service on a database.
func (d *database) manualSubject(t *testing.T, flaw string) *crash.Wire {
	t.Helper()
	d.schema(t, manualSchema)
	if d.driver == "pgx" {
		d.parameters = "&default_query_exec_mode=exec" // without boundaries that only prepare
	}
	want := crash.Effects{"order": 1, "event": 1, "claim": 1}
	if flaw == "no claim" {
		delete(want, "claim")
	}
	return d.subject("manual/"+d.driver+" "+flaw, map[string]string{
		"order": "SELECT COUNT(*) FROM orders WHERE ref = :ref",
		"event": "SELECT COUNT(*) FROM events WHERE ref = :ref",
		"claim": "SELECT COUNT(*) FROM claims WHERE ref = :ref",
	}, want)
}

var databases = map[string]func(*testing.T) *database{"postgres": newPostgres, "mariadb": newMariaDB}

// TestManual proves that the oracle is silent about a service that keeps its
// claims by hand and rightly, and TestFlaws that it speaks about the others.
func TestManual(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t).manualSubject(t, "")
			r, err := crash.Singles(t.Context(), s, crash.Options{}, crash.Reset.Name, crash.Close.Name)
			check(t, name+", a claim by hand", r, err)
		})
	}
}

func TestFlaws(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		for flaw, sign := range flaws {
			if name == "postgres" && flaw != "commit error is a failure" && !*full {
				continue // they are flaws of the service, whatever its database
			}
			t.Run(name+", "+flaw, func(t *testing.T) {
				t.Parallel()
				o := crash.Options{Patience: time.Second} // which a stuck order uses up
				r, err := crash.Singles(t.Context(), open(t).manualSubject(t, flaw), o, crash.Reset.Name)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(r.Violations, func(v string) bool { return strings.Contains(v, sign) }) {
					t.Errorf("%v, none with %q: %q", r, sign, r.Violations)
				}
			})
		}
	}
}
