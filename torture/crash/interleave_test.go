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
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/torture/crash"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

// once is one Execute of a driver for each attempt: no waiting, no re-runs.
const once = "once"

// execution is a program that is one Execute.
type execution[TTx any] struct{ *service[TTx] }

// Attempt implements crash.Program.
func (e execution[TTx]) Attempt(ctx context.Context, o crash.Order) crash.Answer {
	c := store.Claim{
		Intent: reprise.Intent{
			Caller: "alice", Operation: atomicMode, Key: o.Key, Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 1},
		},
		Token: store.NewToken(), Number: 1,
	}
	entry, _, err := e.driver.Execute(ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
		r, err := e.order(ctx, tx, o.Ref)
		return store.Completion{Result: r, Retention: time.Hour, Tombstone: time.Hour}, err
	})
	switch {
	case err == nil && entry.State == reprise.StateCompleted:
		return crash.Answer{Outcome: reprise.Succeeded, Body: string(entry.Result.Body)}
	case err == nil:
		return crash.Answer{Outcome: reprise.NotProcessed, Detail: "in flight"}
	case errors.Is(err, store.ErrBusy):
		return crash.Answer{Outcome: reprise.NotProcessed, Detail: "busy"}
	case errors.Is(err, store.ErrConflict):
		return crash.Answer{Outcome: reprise.NotProcessed, Detail: "conflict"}
	}
	return crash.Answer{Detail: err.Error()}
}

// blocked tells whether a session of the server waits for a lock. It must not be
// late: in PostgreSQL the lock manager itself is asked, and in InnoDB the list of
// transactions as the engine prints it, because what information_schema shows is
// up to 0.1 s old.
func (d *database) blocked(ctx context.Context, session uint32) (waits bool, err error) {
	if d.protocol.String() == sqlwire.Postgres.String() {
		err = d.db.QueryRowContext(ctx, "SELECT pg_blocking_pids($1) <> '{}'", session).Scan(&waits)
		return waits, err
	}
	var kind, name, status string
	if err := d.db.QueryRowContext(ctx, "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status); err != nil {
		return false, err
	}
	mine := fmt.Sprintf("thread id %d,", session)
	for transaction := range strings.SplitSeq(status, "---TRANSACTION") {
		if strings.Contains(transaction, mine) && strings.Contains(transaction, "LOCK WAIT") {
			return true, nil
		}
	}
	return false, nil
}

// TestInterleavings runs every schedule of two Execute at one intent, on each
// driver.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	for _, s := range subjects {
		if s.variant && !*full {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			d, w := s.service(t, once)
			result, err := crash.Interleave(t.Context(), w, d.blocked)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, two executions: %v", s.name, result)
			for _, v := range result.Violations {
				t.Error(v)
			}
			if result.Overlapped == 0 {
				t.Error("the two attempts never overlapped")
			}
		})
	}
}

// TestInterleavingsWithLocks runs every schedule of two transactions of which the
// second waits for the claim of the first, so that somebody waits.
func TestInterleavingsWithLocks(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			result, err := crash.Interleave(t.Context(), d.manualSubject(t, patient), d.blocked)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, a claim by hand: %v", name, result)
			for _, v := range result.Violations {
				t.Error(v)
			}
			if result.Overlapped == 0 || result.Waited == 0 {
				t.Error("the two attempts never overlapped, or never waited for each other")
			}
		})
	}
}

// TestInterleavingsFindARace proves that a service that looks whether an order
// exists, and then inserts it, is found out, and by what schedule.
func TestInterleavingsFindARace(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			d.schema(t, "CREATE TABLE orders (ref VARCHAR(64))")
			w := d.subject("careless/"+d.driver, map[string]string{"order": "SELECT COUNT(*) FROM orders WHERE ref = :ref"}, crash.Effects{"order": 1})
			result, err := crash.Interleave(t.Context(), w, d.blocked)
			if err != nil {
				t.Fatal(err)
			}
			double := slices.ContainsFunc(result.Violations, func(v string) bool { return strings.Contains(v, "map[order:2]") })
			serial := result.Schedules - result.Overlapped
			if !double || serial == 0 {
				t.Errorf("%v: %q", result, result.Violations)
			}
		})
	}
}

func init() {
	for _, driver := range []string{"pgx", "mysql"} {
		programs["careless/"+driver] = func(ctx context.Context, dsn string, _ *sql.DB) (crash.Program, error) {
			db, err := sql.Open(driver, dsn)
			if err != nil {
				return nil, err
			}
			return careless{db}, db.PingContext(ctx)
		}
	}
}

// careless looks first and then acts.
type careless struct{ *sql.DB }

// Attempt implements crash.Program.
func (c careless) Attempt(ctx context.Context, o crash.Order) crash.Answer {
	n := 0
	err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders WHERE ref = '"+o.Ref+"'").Scan(&n)
	if err == nil && n == 0 {
		_, err = c.ExecContext(ctx, "INSERT INTO orders VALUES ('"+o.Ref+"')")
	}
	if err != nil {
		return crash.Answer{Detail: err.Error()}
	}
	return crash.Answer{Outcome: reprise.Succeeded, Body: o.Ref}
}
