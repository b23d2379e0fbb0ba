// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/shop"
	"github.com/reprise-go/reprise/torture/crashpoint"
)

// crashAt makes the test binary a shop that kills itself at the boundary of this
// number.
const crashAt = "REPRISE_TEST_CRASH_AT"

// stride is 1 where every boundary is tried. The race detector makes a process ten
// times as slow, and what is looked for here is no race: under it only some of them
// are.
var stride = map[bool]int64{false: 1, true: 9}[raceDetector]

// crashLease is short, because every crash leaves a lease behind.
const crashLease = 150 * time.Millisecond

// runUntilCrash is the main function of a shop that dies at a boundary between
// two statements, counted from the first one that the process sends.
func runUntilCrash(boundary, db, sqlDriver, provider string) int {
	at, err := strconv.ParseInt(boundary, 10, 64)
	if err != nil {
		panic(err)
	}
	plain, err := sql.Open(sqlDriver, "")
	if err != nil {
		panic(err)
	}
	var count atomic.Int64
	sql.Register("crashing", crashpoint.Wrap(plain.Driver(), func(b crashpoint.Boundary) error {
		if isFact(b) && count.Add(1) == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // SIGKILL needs a moment, and nothing may happen in it.
		}
		return nil
	}))
	s, err := shop.Open(context.Background(), shop.Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", DB: db, Driver: "crashing", PSP: provider,
		Lease: crashLease, Out: os.Stdout, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	if err := s.Run(context.Background()); err != nil {
		panic(err)
	}
	return 0
}

// isFact says which boundaries are facts: those before every statement that
// writes, and those after a COMMIT. What lies between two reads is the same as
// what lies before the next write, and what is after one write is before the next.
func isFact(b crashpoint.Boundary) bool {
	statement := strings.ToUpper(strings.TrimSpace(b.Statement))
	if strings.HasPrefix(statement, "SELECT") || strings.HasPrefix(statement, "PRAGMA") {
		return false
	}
	return b.When == crashpoint.Before || strings.HasPrefix(statement, "COMMIT")
}

// crashes is one database on which a shop dies at one boundary, and the client
// who never learns why.
type crashes struct {
	*world

	args []string
	now  *process
	died bool
}

// revive starts an ordinary shop in the place of one that has died.
func (c *crashes) revive() {
	c.t.Helper()
	select {
	case <-c.now.ended:
		if c.died {
			c.t.Fatalf("the shop died a second time: %s", c.now.stderr)
		}
		c.died = true
		c.now = start(c.t, c.args...)
		c.api, c.admin = c.now.api, c.now.admin
	default:
	}
}

// until repeats a request under its key until it has a final answer, through the
// death of the shop.
func (c *crashes) until(status int, request func() reply) reply {
	c.t.Helper()
	var r reply
	if !eventually(func() bool {
		c.revive()
		r = request()
		return r.status == status
	}) {
		c.t.Fatalf("no answer: %v", r)
	}
	return r
}

// TestKilledAtEveryStatement kills the shop with SIGKILL at boundary 1, 2, 3, ...
// between the statements of its start, an order, a payment and the delivery of
// their events, until a shop lives to the end. Each time another shop is started,
// the client repeats what it has no answer to, and in the end there is one order,
// one charge, one event of each and one delivery of each, and nothing is stuck.
//
// On a database server it is every ninth boundary; the drivers' own tests try all
// of them, on the wire.
func TestKilledAtEveryStatement(t *testing.T) {
	onEach(t, func(t *testing.T, on kind) {
		if on.server {
			killEvery(t, on, 9, 50)
		} else {
			killEvery(t, on, stride, 70)
		}
	})
}

// killEvery tries every boundary whose number is a multiple of stride, and demands
// that there are at least so many boundaries.
func killEvery(t *testing.T, on kind, stride, least int64) {
	pr := openProvider(t)
	var next, killed atomic.Int64
	var survived atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !survived.Load() && !t.Failed() {
				at := next.Add(stride)
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					if killAt(t, on, pr, at) {
						killed.Add(1)
					} else {
						survived.Store(true)
					}
				})
			}
		})
	}
	wg.Wait()
	if n := killed.Load(); n == 0 || (n+1)*stride <= least {
		t.Errorf("the shop was killed %d times; its statements are more than that", n)
	}
	t.Logf("killed at %d boundaries", killed.Load())
}

// killAt runs the scenario once and reports whether the shop was killed in it.
func killAt(t *testing.T, on kind, pr *provider, at int64) bool {
	db := on.fresh(t)
	cmd := exec.Command(os.Args[0], db, on.driver, pr.url)
	cmd.Env = append(os.Environ(), crashAt+"="+strconv.FormatInt(at, 10))
	c := &crashes{
		now:  launch(t, cmd),
		args: []string{"--db", db, "--psp", pr.url, "--lease", crashLease.String()},
	}
	c.world = c.now.world(pr)
	ref, createKey, payKey := fmt.Sprint("crash", at), newKey(), newKey()
	order := c.until(201, func() reply {
		return c.do(call{method: "POST", path: "/orders", key: createKey, body: orderBody(ref)})
	})
	payment := c.until(201, func() reply { return c.pay(order.header.Get("Location"), payKey, ref) })
	c.until(200, func() reply {
		if r := send(t, "GET", c.admin+"/effects?caller=alice&ref="+ref, nil, nil); r.status != 200 ||
			!strings.Contains(r.body, `"deliveries":{"order.created":1,"payment.captured":1}`) {
			return reply{}
		}
		return reply{status: 200}
	})
	hit := c.died
	if !hit { // Its boundary may be the next one; what follows is for a shop that lives.
		c.now.kill()
		c.revive()
	}
	c.settle(ref, paid)
	again := c.until(201, func() reply {
		return c.do(call{method: "POST", path: "/orders", key: createKey, body: orderBody(ref)})
	})
	if again.body != order.body || !again.replayed() {
		t.Errorf("the order became %v", again)
	}
	if again := c.pay(order.header.Get("Location"), payKey, ref); again.body != payment.body || !again.replayed() {
		t.Errorf("the payment became %v", again)
	}
	return hit
}
