// SPDX-License-Identifier: Apache-2.0

//go:build failover

package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store/postgres"
)

// TestFailover promotes the standby of a synchronous pair under load. Clients go on
// with their keys until they have an answer, as a retrying client does, through
// whichever server takes writes. No order that was acknowledged at any time may be
// missing on the new primary, and none may be there twice.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, pair *dbserver.PostgresPair){
		"the primary is killed": func(t *testing.T, pair *dbserver.PostgresPair) {
			t.Helper()
			if err := pair.Primary.Kill(); err != nil {
				t.Error(err)
			}
		},
		// Commits that wait for a standby that has gone are cut off, one after the
		// other, which makes them visible without their being safe, until the old
		// primary dies too.
		"the old primary lives on for a while": func(t *testing.T, pair *dbserver.PostgresPair) {
			t.Helper()
			dsn := pair.Primary.DSN("postgres")
			if err := pair.Promote(context.Background()); err != nil {
				t.Error(err)
			}
			admin := openDB(t, dsn)
			for cut := 0; cut < 20; {
				var n int
				if err := admin.QueryRow("SELECT count(*) FROM (SELECT pg_terminate_backend(pid) " + waiting + ") AS ended").Scan(&n); err != nil {
					t.Error(err)
					break
				}
				cut += n
			}
			if err := pair.Primary.Kill(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range 3 {
				failover(t, round, fail)
			}
		})
	}
}

// failover is one round: a pair, a load, a failure in the middle of it.
func failover(t *testing.T, round int, fail func(t *testing.T, pair *dbserver.PostgresPair)) {
	const clients, before, after = 16, 200, 200
	pair, err := dbserver.StartPostgresPair(t.Context(), dbserver.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pair.Stop(); err != nil {
			t.Error(err)
		}
	}()
	dsn := "postgres://postgres@" + pair.Primary.Addr() + "," + pair.Standby.Addr() +
		"/postgres?sslmode=disable&target_session_attrs=read-write"
	// Two processes, because it is the other one that replays what nobody confirmed.
	var shops []*shop
	for range 2 {
		shops = append(shops, openShop(t, dsn, clients, &postgres.Options{DurableReplay: true}, &ledger.Config{WorkTimeout: 10 * time.Second}))
	}

	var mu sync.Mutex
	var acknowledged []reprise.Key
	var doubts, failed atomic.Int64 // Answers of the outcome unknown, and all others that were no answer.
	acks := make(chan struct{}, 1<<16)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for c := range clients {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				ref := reprise.Key(fmt.Sprintf("%d-%d-%d", round, c, n))
				for try := 0; ; try++ {
					_, err := shops[(c+try)%len(shops)].do(ref)
					if err == nil {
						break
					}
					if failed.Add(1); reprise.OutcomeOf(err) == reprise.Unknown {
						doubts.Add(1)
					}
					time.Sleep(20 * time.Millisecond) // The client's own pause.
				}
				mu.Lock()
				acknowledged = append(acknowledged, ref)
				mu.Unlock()
				acks <- struct{}{}
			}
		})
	}
	await := func(n int) {
		for range n {
			<-acks
		}
	}
	await(before)
	fail(t, pair)
	if recovering, err := pair.Standby.Exec(t.Context(), "postgres", "SELECT pg_is_in_recovery()"); err != nil || recovering == "t" {
		if err := pair.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await(after + len(acks))
	close(stop)
	load.Wait()

	promoted := pair.Standby.DSN("postgres")
	orders := ordered(t, promoted)
	missing := slices.DeleteFunc(slices.Clone(acknowledged), func(ref reprise.Key) bool { return orders[ref] == 1 })
	if len(missing) > 0 {
		t.Errorf("%d of %d acknowledged orders are not there exactly once: %v", len(missing), len(acknowledged), missing)
	}
	effects(t, promoted, len(acknowledged))
	t.Logf("round %d: %d acknowledged, %d attempts without an answer, %d of them in doubt", round, len(acknowledged), failed.Load(), doubts.Load())
}

// ordered counts the orders of each reference.
func ordered(t *testing.T, dsn string) map[reprise.Key]int {
	t.Helper()
	rows, err := openDB(t, dsn).QueryContext(context.Background(), "SELECT ref, count(*) FROM orders GROUP BY ref")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	counts := map[reprise.Key]int{}
	for rows.Next() {
		var ref string
		var n int
		if err := rows.Scan(&ref, &n); err != nil {
			t.Fatal(err)
		}
		counts[reprise.Key(ref)] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}
