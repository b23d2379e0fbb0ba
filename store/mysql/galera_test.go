// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

// node makes a data source name of a database on one node of the cluster.
type node func(database string) (dsn string)

func cluster(tb testing.TB) (nodes []node) {
	tb.Helper()
	for _, n := range dbtest.Galera(tb).Nodes {
		nodes = append(nodes, n.DSN)
	}
	return nodes
}

// causal is for an application that wants to see what was committed on any node.
const causal = "?wsrep_sync_wait=15"

var clusterDatabases atomic.Int64

// clusterDatabase makes a database that all nodes know when it returns.
func clusterDatabase(tb testing.TB, nodes []node) (name string) {
	tb.Helper()
	name = fmt.Sprintf("test%d_%d", os.Getpid(), clusterDatabases.Add(1))
	if _, err := openDB(tb, nodes[0]("mysql")).Exec("CREATE DATABASE " + name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = openDB(tb, nodes[0]("mysql")).Exec("DROP DATABASE " + name) })
	for _, n := range nodes {
		if _, err := openDB(tb, n("mysql")+causal).Exec("SHOW DATABASES"); err != nil {
			tb.Fatal(err)
		}
	}
	return name
}

// galeraBed is a bed in a cluster, with a driver on each node.
func galeraBed(t *testing.T) (b *bed, drivers []*mysql.Driver) {
	t.Helper()
	nodes := cluster(t)
	name := clusterDatabase(t, nodes)
	b = &bed{T: t, dsn: nodes[0](name), plain: openDB(t, nodes[0](name)+causal)}
	for _, n := range nodes {
		drivers = append(drivers, newDriver(t, n(name)+together))
	}
	b.business()
	for _, n := range nodes {
		if _, err := openDB(t, n(name)+causal).Exec("SELECT n FROM stock"); err != nil {
			t.Fatal(err)
		}
	}
	return b, drivers
}

// TestGaleraCertification has two nodes change one row for two intents at once.
// Neither waits for the other; one learns at COMMIT that it has lost.
func TestGaleraCertification(t *testing.T) {
	t.Parallel()
	b, drivers := galeraBed(t)
	const rounds = 5
	var conflicts atomic.Int32
	for round := range rounds {
		var wg, met sync.WaitGroup
		met.Add(2)
		for n := range 2 {
			key := fmt.Sprintf("k-%d-%d", round, n)
			meet := sync.OnceFunc(func() { met.Done(); met.Wait() })
			wg.Go(func() {
				err := again(t.Context(), func() error {
					_, _, err := execute(t.Context(), drivers[n], claim(key), func(ctx context.Context, tx *sql.Tx) error {
						if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE item = 'a'"); err != nil {
							return err
						}
						meet() // both have changed the row before either commits
						return order(ctx, tx, key)
					})
					if errors.Is(err, store.ErrConflict) {
						conflicts.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b.wantOrders(fmt.Sprintf("k-%d-0", round), 1)
		b.wantOrders(fmt.Sprintf("k-%d-1", round), 1)
	}
	if conflicts.Load() < rounds {
		t.Errorf("%d of %d conflicts were found; the test proves nothing", conflicts.Load(), rounds)
	}
	if n := b.number("SELECT n FROM stock WHERE item = 'a'"); n != 2*rounds {
		t.Errorf("the stock was changed %d times, want %d", n, 2*rounds)
	}
}

// TestGaleraOneKey has all nodes execute one intent at once. None sees the claim
// of another, so all of them run, and one commits.
func TestGaleraOneKey(t *testing.T) {
	t.Parallel()
	b, drivers := galeraBed(t)
	for round := range 4 {
		key := fmt.Sprintf("k-%d", round)
		var wg, met sync.WaitGroup
		met.Add(len(drivers))
		var ran, executed atomic.Int32
		for _, d := range drivers {
			meet := sync.OnceFunc(func() { met.Done(); met.Wait() })
			wg.Go(func() {
				err := again(t.Context(), func() error {
					_, did, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error {
						if err := order(ctx, tx, key); err != nil {
							return err
						}
						ran.Add(1)
						meet()
						return nil
					})
					if did {
						executed.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if int(ran.Load()) < len(drivers) {
			t.Errorf("the work ran %d times; the nodes did not meet", ran.Load())
		}
		if executed.Load() != 1 {
			t.Errorf("%d nodes executed, want 1", executed.Load())
		}
		b.wantOrders(key, 1)
	}
}

// TestGaleraResolve asks one node about an attempt that stands before its COMMIT on
// another. The answer that nothing was kept must stay true.
func TestGaleraResolve(t *testing.T) {
	t.Parallel()
	b, drivers := galeraBed(t)
	inside, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, _, err := execute(t.Context(), drivers[0], claim("k"), func(ctx context.Context, tx *sql.Tx) error {
			err := order(ctx, tx, "k")
			close(inside)
			<-release
			return err
		})
		done <- err
	}()
	<-inside
	_, err := resolve(t.Context(), drivers[1], intent("k"))
	close(release)
	end := <-done
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("resolved with error %v, want ErrNotFound", err)
	}
	if !errors.Is(end, store.ErrConflict) {
		t.Errorf("the attempt that was said to be gone ended with %v, want a conflict", end)
	}
	b.wantOrders("k", 0)
}
