// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/ledger"
)

// HotKey holds one key open while 500 requests want it, and has all other keys
// served meanwhile by the same small pools: those who wait hold no connection.
func HotKey[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			t.Parallel()
			hotKey(t, h, processes)
		})
	}
}

func hotKey[TTx any](t *testing.T, h Harness[TTx], processes int) {
	const duplicates, others = 500, 100
	dsn := dbtest.PostgresDatabase(t)
	see := observe(t, dsn)
	var services []*service[TTx]
	for range processes {
		services = append(services, h.open(t, dsn, Options{}, &ledger.Config{WorkTimeout: 2 * time.Minute}))
	}

	held, release := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // a test that has failed must not wait for ever
	var runs, calling, answered atomic.Int64
	slow := func(context.Context, TTx) error {
		if runs.Add(1) == 1 {
			close(held)
		}
		<-release
		return nil
	}
	answers := make([]ledger.Answer, duplicates)
	var wait sync.WaitGroup
	for i := range duplicates {
		wait.Go(func() {
			calling.Add(1)
			var err error
			answers[i], err = services[i%processes].do("hot", slow)
			answered.Add(1)
			if err != nil {
				t.Errorf("duplicate %d: %v", i, err)
			}
		})
	}
	<-held
	see.eventually("all duplicates are on their way", func() bool { return calling.Load() == duplicates })

	// All of these are answered before the hot key is released: if they had to wait
	// for it, the test would never end.
	var rest sync.WaitGroup
	for i := range others {
		rest.Go(func() {
			ref := reprise.Key(fmt.Sprintf("other-%d", i))
			if _, err := services[i%processes].do(ref); err != nil {
				t.Errorf("%s: %v", ref, err)
			}
		})
	}
	rest.Wait()
	if n := answered.Load(); n != 0 {
		t.Errorf("%d duplicates were answered while the first attempt was at work", n)
	}
	// The owner has a connection. In another process one at most is looking.
	open := see.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
	if open < 1 || open > processes {
		t.Errorf("%d transactions are open for one key in %d processes", open, processes)
	}
	see.effects(others)

	free()
	wait.Wait()
	executed := 0
	for _, a := range answers {
		if !a.Replayed {
			executed++
		}
		if !bytes.Equal(a.Result.Body, answers[0].Result.Body) {
			t.Errorf("one key got the answers %q and %q", a.Result.Body, answers[0].Result.Body)
		}
	}
	if executed != 1 || runs.Load() != 1 {
		t.Errorf("%d answers say that they executed, in %d runs of the work", executed, runs.Load())
	}
	see.effects(others + 1)
}
