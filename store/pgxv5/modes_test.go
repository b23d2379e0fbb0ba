// SPDX-License-Identifier: Apache-2.0

package pgxv5_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/pgxv5"
	"github.com/reprise-go/reprise/store/postgres"
	"github.com/reprise-go/reprise/store/storetest"
)

// TestConformanceBehindPgBouncer runs the whole suite in transaction mode, where
// every transaction may be on another connection to the server.
func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Parallel()
	h := harness("")
	h.Create = func(tb testing.TB) string {
		return dbtest.PgBouncer(tb).DSN(dbtest.PostgresDatabaseName(tb)) + "&default_query_exec_mode=exec"
	}
	storetest.Run(t, h)
}

// TestModes does one of everything in each mode of pgx, on the server and behind
// pgbouncer where it can be.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, bouncer := range []bool{false, true} {
			if bouncer && mode != "exec" && mode != "simple_protocol" {
				continue // what they prepare may be in another session
			}
			t.Run(fmt.Sprintf("%s bouncer=%t", mode, bouncer), func(t *testing.T) {
				t.Parallel()
				name := dbtest.PostgresDatabaseName(t)
				dsn := dbtest.Postgres(t).DSN(name)
				direct := openPool(t, dsn)
				if _, err := direct.Exec(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY, amount int)"); err != nil {
					t.Fatal(err)
				}
				if bouncer {
					dsn = dbtest.PgBouncer(t).DSN(name)
				}
				d, stop := openDriver(t, dsn+"&default_query_exec_mode="+mode, nil)
				defer stop()
				oneOfEverything(&shop{T: t, d: d, pool: direct})
			})
		}
	}
}

func oneOfEverything(s *shop) {
	s.Helper()
	odd := []byte("\x00\xff'\\\"")
	natural := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertOrder, "it's \\ natural", 1)
		return errors.Join(err, s.d.Enqueue(ctx, tx, message("natural"), reprise.Message{
			ID: "odd", Source: "/o'r\\d", Type: "t", Time: time.Now(), Data: odd, Header: map[string]string{"k": "\xff"},
		}))
	}
	first, executed, err := s.execute("natural", natural)
	if err != nil || !executed {
		s.Fatalf("natural: executed %t, error %v", executed, err)
	}
	repeat, executed, err := s.execute("natural", natural)
	if err != nil || executed || repeat.Token != first.Token || !repeat.CompletedAt.Equal(first.CompletedAt) ||
		string(repeat.Result.Body) != string(first.Result.Body) {
		s.Errorf("the repeat: executed %t, %+v, error %v; want %+v", executed, repeat, err, first)
	}
	_, executed, err = s.execute("queued", func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(insertOrder, "queued", 1)
		b.Queue("UPDATE orders SET amount = $1 WHERE id = $2", 2, "queued")
		return pgxv5.Queue(ctx, tx, b)
	})
	if err != nil || !executed {
		s.Errorf("queued: executed %t, error %v", executed, err)
	}
	// An intent in flight, and what others are told: with its content and without.
	inside, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, _, err := s.execute("slow", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertOrder, "slow", 1)
			close(inside)
			<-release
			return err
		})
		ended <- err
	}()
	<-inside
	if _, _, err := s.execute("slow", natural); !errors.Is(err, store.ErrBusy) {
		s.Errorf("beside the slow one: %v, want ErrBusy", err)
	}
	other := claimOf("slow")
	other.Intent.Fingerprint[1] = 2
	e, executed, err := s.d.Execute(s.Context(), other, func(ctx context.Context, tx pgx.Tx) (store.Completion, error) {
		return done(), natural(ctx, tx)
	})
	if err != nil || executed || e.State != reprise.StateInProgress || e.Intent.Fingerprint == other.Intent.Fingerprint {
		s.Errorf("other content beside the slow one: executed %t, %+v, error %v", executed, e, err)
	}
	close(release)
	if err := <-ended; err != nil {
		s.Errorf("the slow one: %v", err)
	}
	s.wantOrders("%", 3)

	r := s.d.Relay()
	slots, err := r.Acquire(s.Context(), "relay", time.Minute, 1)
	if err != nil || len(slots) != 1 {
		s.Fatalf("acquire: %v, %v", slots, err)
	}
	page, err := r.Fetch(s.Context(), slots[0], 10)
	if err != nil || len(page.Messages) != 2 || len(page.Unreadable) != 0 {
		s.Fatalf("fetch: %+v, %v", page, err)
	}
	for _, m := range page.Messages {
		if m.ID == "odd" && (string(m.Data) != string(odd) || m.Header["k"] != "\xff") {
			s.Errorf("the odd message came back as %+v", m)
		}
	}
	if err := r.Advance(s.Context(), slots[0], page, nil); err != nil {
		s.Errorf("advance: %v", err)
	}
}

// TestMixedDrivers lets a program with this driver and one with store/postgres
// share a database, as they do while one is rolled out in the place of the other.
func TestMixedDrivers(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	db, err := sql.Open("pgx", s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	p, err := postgres.New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	ours := func(key reprise.Key) (store.Entry, bool, error) {
		return s.execute(key, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertOrder, string(key), 1)
			return errors.Join(err, s.d.Enqueue(ctx, tx, message("event-"+string(key))))
		})
	}
	theirs := func(key reprise.Key) (store.Entry, bool, error) {
		return p.Execute(t.Context(), claimOf(key), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
			_, err := tx.ExecContext(ctx, insertOrder, string(key), 1)
			return done(), errors.Join(err, p.Enqueue(ctx, tx, message("event-"+string(key))))
		})
	}
	type execute = func(reprise.Key) (store.Entry, bool, error)
	for key, order := range map[reprise.Key][2]execute{"ours first": {ours, theirs}, "theirs first": {theirs, ours}} {
		first, executed, err := order[0](key)
		if err != nil || !executed {
			t.Fatalf("%s: executed %t, error %v", key, executed, err)
		}
		second, executed, err := order[1](key)
		if err != nil || executed || second.Token != first.Token || string(second.Result.Body) != string(first.Result.Body) ||
			!second.ExpiresAt.Equal(first.ExpiresAt) {
			t.Errorf("%s: the other driver executed %t, %+v, error %v; want %+v", key, executed, second, err, first)
		}
	}
	// In flight in one, tried in the other.
	for name, hold := range map[string]func(key reprise.Key, inside chan<- struct{}, release <-chan struct{}) error{
		"ours": func(key reprise.Key, inside chan<- struct{}, release <-chan struct{}) error {
			_, _, err := s.execute(key, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insertOrder, string(key), 1)
				close(inside)
				<-release
				return err
			})
			return err
		},
		"theirs": func(key reprise.Key, inside chan<- struct{}, release <-chan struct{}) error {
			_, _, err := p.Execute(t.Context(), claimOf(key), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
				_, err := tx.ExecContext(ctx, insertOrder, string(key), 1)
				close(inside)
				<-release
				return done(), err
			})
			return err
		},
	} {
		inside, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		key := reprise.Key("held by " + name)
		go func() { ended <- hold(key, inside, release) }()
		<-inside
		for _, try := range []execute{ours, theirs} {
			if _, _, err := try(key); !errors.Is(err, store.ErrBusy) {
				t.Errorf("beside what is %s: %v, want ErrBusy", key, err)
			}
		}
		close(release)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	s.wantOrders("%", 4)
	if b, err := p.Relay().Backlog(t.Context()); err != nil || b.Waiting != 2 {
		t.Errorf("backlog %+v, error %v; want 2 events", b, err)
	}
}
