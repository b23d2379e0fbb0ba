// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store/postgres"
)

// waiting chooses the transactions that are committed and wait for the standby.
const waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'"

// attempt is one call of Do, under way.
type attempt struct {
	answer ledger.Answer
	err    error
	done   chan struct{}
}

// try lets a process of a service begin an order.
func (s *shop) try(ref reprise.Key) *attempt {
	a := &attempt{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.answer, a.err = s.do(ref)
	}()
	return a
}

// acknowledged reports whether the client was told that there is an order.
func (a *attempt) acknowledged() bool {
	<-a.done
	return a.err == nil
}

// TestDurableReplay shows what a commit that nobody confirmed does to those who
// read it, and that Options.DurableReplay is what keeps it from them.
//
// The standby is down, so a COMMIT waits for it. The connection that waits is ended
// by the server: the order is committed there, and nowhere else. Who looks now finds
// its record. When the standby is promoted, that record has never been.
func TestDurableReplay(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("DurableReplay=%v", durable), func(t *testing.T) {
			t.Parallel()
			pair, err := dbserver.StartPostgresPair(t.Context(), dbserver.PostgresOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := pair.Stop(); err != nil {
					t.Error(err)
				}
			})
			replayOfUnconfirmed(t, pair, durable)
		})
	}
}

func replayOfUnconfirmed(t *testing.T, pair *dbserver.PostgresPair, durable bool) {
	dsn := pair.Primary.DSN("postgres")
	options := &postgres.Options{DurableReplay: durable}
	s, other := openShop(t, dsn, 4, options, nil), openShop(t, dsn, 4, options, nil)
	if _, err := s.do("confirmed"); err != nil {
		t.Fatal(err)
	}
	if err := pair.Standby.Kill(); err != nil {
		t.Fatal(err)
	}

	first := s.try("k")
	eventually(t, "COMMIT waits for the standby", func() bool { return number(t, dsn, "SELECT count(*) "+waiting) == 1 })
	if n := number(t, dsn, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) "+waiting+") AS ended"); n != 1 {
		t.Fatalf("%d waits were cut off, want 1", n)
	}
	eventually(t, "the order can be seen", func() bool { return number(t, dsn, "SELECT count(*) FROM orders WHERE ref = 'k'") == 1 })
	repeat := other.try("k")

	if durable {
		// Both look for the record, find it, and now wait as the COMMIT did.
		eventually(t, "both answers wait for the standby", func() bool { return number(t, dsn, "SELECT count(*) "+waiting) == 2 })
	} else if !first.acknowledged() || !repeat.acknowledged() {
		t.Errorf("the hazard is not there: %v and %v", first.err, repeat.err)
	}
	if err := pair.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*attempt{"the attempt": first, "its repeat": repeat} {
		if a.acknowledged() != !durable {
			t.Errorf("%s was answered %+v, %v", name, a.answer, a.err)
		}
		if durable && reprise.OutcomeOf(a.err) != reprise.Unknown {
			t.Errorf("%s was told %v, want unknown", name, a.err)
		}
	}

	if err := pair.Standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := pair.Standby.DSN("postgres")
	effects(t, promoted, 1) // The confirmed one. An acknowledged order is missing, unless nobody was told of it.
	after := openShop(t, promoted, 4, options, nil)
	if a, err := after.do("confirmed"); err != nil || !a.Replayed {
		t.Errorf("the confirmed order is answered %+v, %v", a, err)
	}
	if a, err := after.do("k"); err != nil || a.Replayed {
		t.Errorf("the lost intent is answered %+v, %v", a, err)
	}
	effects(t, promoted, 2)
}

// moving is a connector whose server is replaced: after so many connections it
// leads to the next one.
type moving struct {
	driver.Connector // The first server's.

	next driver.Connector
	left atomic.Int64
}

func (m *moving) Connect(ctx context.Context) (driver.Conn, error) {
	if m.left.Add(-1) >= 0 {
		return m.Connector.Connect(ctx)
	}
	return m.next.Connect(ctx)
}

func connector(t *testing.T, dsn string) driver.Connector {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return stdlib.GetConnector(*config)
}

// TestDurableReplayBesideFailover replaces the server between the look that finds a
// record and the transaction that confirms it. The new one never had the record and
// confirms whatever it is asked to, so it must be asked for the record.
func TestDurableReplayBesideFailover(t *testing.T) {
	t.Parallel()
	for _, number := range []int{0, 2} { // Who repeats looks first; who does not claims first.
		t.Run(fmt.Sprintf("attempt %d", number), func(t *testing.T) {
			t.Parallel()
			before, after := dbtest.PostgresDatabase(t), dbtest.PostgresDatabase(t)
			old := openShop(t, before, 4, nil, nil)
			if _, err := old.do("k"); err != nil {
				t.Fatal(err)
			}
			openShop(t, after, 4, nil, nil)

			server := &moving{Connector: connector(t, before), next: connector(t, after)}
			db := sql.OpenDB(server)
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxIdleConns(-1) // Each transaction has a connection of its own.
			server.left.Store(2)   // New has one, and so has the look.
			d := mustNew(t, db, &postgres.Options{DurableReplay: true})
			l, err := ledger.New[*sql.Tx](d, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &shop{t: t, db: db, driver: d, ledger: l}
			a, err := l.Do(t.Context(), order("k"), ledger.Options{Number: number}, s.ordering("k"))
			if err == nil && a.Replayed {
				t.Errorf("answered %+v, and the server that is left does not know it", a)
			}
			if server.left.Load() >= 0 {
				t.Error("the server was not replaced")
			}
			if err != nil { // A look that finds nothing to confirm may also ask for another attempt.
				if a, err = l.Do(t.Context(), order("k"), ledger.Options{Number: 3}, s.ordering("k")); err != nil || a.Replayed {
					t.Errorf("the next attempt got %+v, %v", a, err)
				}
			}
			effects(t, after, 1)
		})
	}
}
