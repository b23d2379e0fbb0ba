// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/ledger"
)

// Failover promotes the standby of a synchronous pair under load. Clients go on
// with their keys until they have an answer, as a retrying client does, through
// whichever server takes writes. No order that was acknowledged at any time may be
// missing on the new primary, and none may be there twice.
func Failover[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for name, fail := range map[string]func(*testing.T, *dbserver.PostgresPair){
		"the primary is killed":                killPrimary,
		"the old primary lives on for a while": outlivePromotion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range 3 {
				t.Run(fmt.Sprint("round ", round), func(t *testing.T) { failover(t, h, fail) })
			}
		})
	}
}

func killPrimary(t *testing.T, pair *dbserver.PostgresPair) {
	t.Helper()
	if err := pair.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// outlivePromotion cuts off commits that wait for a standby that has gone, one
// after the other, which makes them visible without their being safe, until the
// old primary dies too.
func outlivePromotion(t *testing.T, pair *dbserver.PostgresPair) {
	t.Helper()
	see := observe(t, pair.Primary.DSN("postgres"))
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := 0
	see.eventually("20 commits are cut off", func() bool {
		cut += see.number(cutOff)
		return cut >= 20
	})
	if err := pair.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
}

// failover is one round: a pair, a load, a failure in the middle of it.
func failover[TTx any](t *testing.T, h Harness[TTx], fail func(*testing.T, *dbserver.PostgresPair)) {
	const clients, before, after = 16, 200, 200
	pair := startPair(t)
	dsn := "postgres://postgres@" + pair.Primary.Addr() + "," + pair.Standby.Addr() +
		"/postgres?sslmode=disable&target_session_attrs=read-write"
	l := &load[TTx]{acks: make(chan struct{}, 1<<16), stop: make(chan struct{}), acknowledged: make([][]reprise.Key, clients)}
	// Two processes, because it is the other one that replays what nobody confirmed.
	for range 2 {
		l.services = append(l.services, h.open(t, dsn,
			Options{Connections: clients, DurableReplay: true}, &ledger.Config{WorkTimeout: 10 * time.Second}))
	}
	t.Cleanup(l.clients.Wait) // They end with the test's context, if it comes to no other end.
	for c := range clients {
		l.clients.Go(func() { l.order(t.Context(), c) })
	}
	l.await(before)
	fail(t, pair)
	l.await(after + len(l.acks))
	close(l.stop)
	l.clients.Wait()

	// A ledger takes up again by itself what it can.
	met := uint64(l.failed.Load())
	for _, s := range l.services {
		met += s.ledger.Stats().Reruns
	}
	if met == 0 {
		t.Error("no attempt has met the failure")
	}
	promoted := observe(t, pair.Standby.DSN("postgres"))
	orders := promoted.orders()
	acknowledged := 0
	for _, refs := range l.acknowledged {
		acknowledged += len(refs)
		for _, ref := range refs {
			if orders[ref] != 1 {
				t.Errorf("the acknowledged order %s is there %d times", ref, orders[ref])
			}
		}
	}
	promoted.effects(acknowledged)
	t.Logf("%d acknowledged, %d times without an answer or run again, %d answers in doubt", acknowledged, met, l.doubts.Load())
}

// load is what clients do to two processes.
type load[TTx any] struct {
	services []*service[TTx]
	clients  sync.WaitGroup
	stop     chan struct{} // Closed: no client begins another order.
	acks     chan struct{} // One for each order that was acknowledged.
	// acknowledged are those of each client.
	acknowledged [][]reprise.Key
	// doubts are answers of the outcome unknown, failed all that were no answer.
	doubts, failed atomic.Int64
}

// order makes one client's orders, one after the other.
func (l *load[TTx]) order(ctx context.Context, client int) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		ref := reprise.Key(fmt.Sprintf("%d-%d", client, n))
		for try := 0; ; try++ {
			if ctx.Err() != nil {
				return
			}
			_, err := l.services[(client+try)%len(l.services)].do(ref)
			if err == nil {
				break
			}
			if l.failed.Add(1); reprise.OutcomeOf(err) == reprise.Unknown {
				l.doubts.Add(1)
			}
			time.Sleep(20 * time.Millisecond) // The client's own pause.
		}
		l.acknowledged[client] = append(l.acknowledged[client], ref)
		l.acks <- struct{}{}
	}
}

// await returns when so many more orders have been acknowledged.
func (l *load[TTx]) await(n int) {
	for range n {
		<-l.acks
	}
}

// orders counts the orders of each reference.
func (o *observer) orders() map[reprise.Key]int {
	o.t.Helper()
	rows, err := o.db.QueryContext(context.Background(), "SELECT ref, count(*) FROM orders GROUP BY ref")
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	counts := map[reprise.Key]int{}
	for rows.Next() {
		var ref string
		var n int
		if err := rows.Scan(&ref, &n); err != nil {
			o.t.Fatal(err)
		}
		counts[reprise.Key(ref)] = n
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	return counts
}
