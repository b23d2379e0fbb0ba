// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise/store/sqlite"
	"github.com/reprise-go/reprise/torture/crash"
	"github.com/reprise-go/reprise/torture/crashpoint"
)

// SQLite has no wire: the process that is to die counts the boundaries in its own
// driver, and kills itself.

// crashAt is the number of the boundary at which it does so.
const crashAt = "REPRISE_CRASH_AT"

// crashing is the driver of that process. The boundaries count from the first
// attempt on.
var crashing = struct {
	begun  atomic.Bool
	number atomic.Int64
	at     int64
}{}

func init() {
	plain, err := sql.Open("sqlite", "")
	if err != nil {
		panic(err)
	}
	crashing.at, _ = strconv.ParseInt(os.Getenv(crashAt), 10, 64)
	sql.Register("crashing", crashpoint.Wrap(plain.Driver(), func(crashpoint.Boundary) error {
		if crashing.begun.Load() && crashing.number.Add(1) == crashing.at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // SIGKILL needs a moment, and nothing may happen in it.
		}
		return nil
	}))
	for _, driver := range []string{"sqlite", "crashing"} {
		for _, operation := range []string{atomicMode, stagedMode} {
			open := openSQL(driver, operation, openSQLite)
			programs[driver+" "+operation] = func(ctx context.Context, dsn string, provider *sql.DB) (crash.Program, error) {
				p, err := open(ctx, dsn, provider)
				return begins{p}, err
			}
		}
	}
}

func openSQLite(ctx context.Context, db *sql.DB) (sqlDriver, error) {
	// Patience is for what hangs, not for what is slow.
	return sqlite.New(ctx, db, &sqlite.Options{BusyTimeout: time.Minute})
}

// begins is a program whose first attempt lets the boundaries count.
type begins struct{ crash.Program }

// Attempt implements crash.Program.
func (b begins) Attempt(ctx context.Context, o crash.Order) crash.Answer {
	crashing.begun.Store(true)
	return b.Program.Attempt(ctx, o)
}

// file is a service on a SQLite file, as a service under test. Its only mode is
// crash.Kill.
type file struct {
	*database

	operation string
	queries   map[string]string
	want      crash.Effects
}

var _ crash.Service = (*file)(nil)

// newFile makes a file with the library's tables and those of the service. The
// provider has a file of its own.
func newFile(t *testing.T, operation string) *file {
	t.Helper()
	name := filepath.Join(t.TempDir(), "shop.db")
	d := openDatabase(t, "sqlite", name, "")
	d.migrateUp(t, openSQLite)
	queries, want := counts(d.driver, operation)
	return &file{database: d, operation: operation, queries: queries, want: want}
}

// Want implements crash.Service.
func (f *file) Want() crash.Effects { return f.want }

// Effects implements crash.Service.
func (f *file) Effects(ctx context.Context, o crash.Order) (crash.Effects, error) {
	return count(ctx, f.db, o, f.queries)
}

// Start implements crash.Service.
func (f *file) Start(ctx context.Context, in crash.Injection) (crash.Instance, error) {
	if in.At == 0 {
		p, err := programs["sqlite "+f.operation](ctx, f.dsn, f.db)
		return crash.Healthy(p), err
	}
	cmd := command("crashing "+f.operation, f.driver, f.dsn, f.dsn)
	cmd.Env = append(cmd.Env, fmt.Sprint(crashAt, "=", in.At))
	return crash.StartMortal(cmd)
}

// TestSQLite kills the process at every boundary between two statements, and kills
// the one that repeats its work at every boundary too.
func TestSQLite(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{atomicMode, stagedMode} {
		if raceDetector && operation == stagedMode {
			continue
		}
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			f := newFile(t, operation)
			r, err := crash.Singles(t.Context(), f, crash.Options{}, crash.Kill.Name)
			check(t, "sqlite, "+operation, r, err)
			if *full {
				r, err := crash.Pairs(t.Context(), f, crash.Options{}, crash.Kill.Name)
				check(t, "sqlite, "+operation+", pairs", r, err)
			}
		})
	}
}
