// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver"
)

// peer is one way to do the job.
type peer struct {
	name    string
	program string
	args    []string
	// keyless peers make an order of every request.
	keyless bool
	// ours is reprise, and best is reprise by its faster driver.
	ours, best bool
	// least is how many times its rate reprise must have.
	least float64
}

// bareHandler is what all peers are measured against.
var bareHandler = peer{name: "bare handler", program: "bare", keyless: true, least: 0.80}

var peers = []peer{
	{name: "bare handler + event", program: "bare", args: []string{"-event"}, keyless: true},
	{name: "ledger and outbox by hand", program: "hand"},
	{name: "DBOS", program: "dbos", least: 4},
	{name: "River + ledger", program: "river", least: 1.9},
	{name: "River, unique column", program: "river", args: []string{"-column"}},
	{name: "Watermill + ledger", program: "watermill", least: 1.15},
	{name: "Watermill, unique column", program: "watermill", args: []string{"-column"}},
	{name: "Restate", program: "restate", least: 6},
	{name: "Fiber's middleware (not durable)", program: "fiber"},
}

const (
	connections = 32
	// peerSlice is how long one peer is measured at a time.
	peerSlice   = 800 * time.Millisecond
	replaySlice = 400 * time.Millisecond
)

// reprisePeers are ours, the best last.
var reprisePeers = []peer{
	{name: "reprise on database/sql", program: "reprise", args: []string{"-driver", "sql"}, ours: true},
	{name: "reprise on pgx", program: "reprise", args: []string{"-driver", "pgx"}, ours: true, best: true},
}

// benchPeers compares a keyed POST that makes one order and one event, over HTTP
// with 32 connections, with the same job done by others. Each peer is a program of
// its own with a database of its own on one server. In each round each peer has a
// slice of fresh keys right after a slice of the bare handler, and then a slice of
// repeats of the keys it has just answered.
func benchPeers(ctx context.Context, r *report, o options) (err error) {
	stage, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	base, err := stage.start(ctx, bareHandler)
	if err != nil {
		return err
	}
	var contenders []*contender
	for _, p := range slices.Concat(peers, reprisePeers) {
		if !o.chosen(p.name) {
			continue
		}
		c, err := stage.start(ctx, p)
		if err != nil {
			return err
		}
		contenders = append(contenders, c)
	}
	for round := range o.runs + 1 {
		if round == 0 {
			progress("warming up")
		} else {
			progress("round %d of %d", round, o.runs)
		}
		for _, c := range contenders {
			if err := c.turn(ctx, base, round > 0); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		slices.Reverse(contenders) // Nobody is always the one that comes after Restate.
	}
	for _, c := range append([]*contender{base}, contenders...) {
		if err := stage.check(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	slices.SortFunc(contenders, func(a, b *contender) int { return a.order - b.order })
	reportPeers(r, stage, contenders, o.runs)
	return nil
}

// stage is where the peers perform.
type stage struct {
	postgres *dbserver.Postgres
	version  string
	dir      string
	source   string
	running  []*contender
}

func newStage(ctx context.Context) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "reprise-bench-"); err != nil {
		return s, err
	}
	if s.source, err = peersDirectory(ctx); err != nil {
		return s, err
	}
	if err = buildPeers(ctx, s.source, s.dir); err != nil {
		return s, err
	}
	s.postgres, s.version, err = startPostgres(ctx)
	return s, err
}

func (s *stage) close() (err error) {
	for _, c := range s.running {
		err = errors.Join(err, c.program.stop())
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Stop())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// contender is a running peer and what it showed.
type contender struct {
	peer

	order    int
	program  *program
	database string

	// answered are the keys of the last slice of fresh ones.
	answered [][]reprise.Key
	// count is of all orders it was asked for.
	count int64
	// fresh and base are measured in pairs.
	fresh, base, replay series
}

func (s *stage) start(ctx context.Context, p peer) (*contender, error) {
	progress("starting %s", p.name)
	c := &contender{peer: p, order: len(s.running), database: "peer" + strconv.Itoa(len(s.running))}
	if err := s.postgres.CreateDatabase(ctx, c.database, ""); err != nil {
		return nil, err
	}
	args := append([]string{"-dsn", s.postgres.DSN(c.database), "-conns", strconv.Itoa(connections)}, p.args...)
	if p.program == "restate" {
		server, err := restateServer(ctx, s.source)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(s.dir, "restate-data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		args = append(args, "-server", server, "-dir", dir)
	}
	var err error
	if c.program, err = startProgram(ctx, filepath.Join(s.dir, p.program), args...); err != nil {
		return nil, err
	}
	s.running = append(s.running, c)
	return c, c.repeats(ctx)
}

// repeats makes sure that a repeat gets the order that the first request made,
// unless the peer knows no keys.
func (c *contender) repeats(ctx context.Context) error {
	conn, err := dial(ctx, c.program.ready.Address, c.program.ready.Path)
	if err != nil {
		return err
	}
	defer conn.close()
	var ids [2]string
	key := reprise.NewKey()
	for i := range ids {
		if err := conn.post(key, i+1); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		var order struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(conn.answer, &order); err != nil || order.ID == "" {
			return fmt.Errorf("%s answered %q: %w", c.name, conn.answer, err)
		}
		ids[i] = order.ID
	}
	c.count++
	if c.keyless {
		c.count++
		return nil
	}
	if ids[0] != ids[1] {
		return fmt.Errorf("%s: the repeat of a request made another order", c.name)
	}
	return nil
}

// turn measures the bare handler and then the peer.
func (c *contender) turn(ctx context.Context, base *contender, keep bool) error {
	b, err := base.fill(ctx)
	if err != nil {
		return err
	}
	fresh, err := c.fill(ctx)
	if err != nil {
		return err
	}
	if keep {
		c.base, c.fresh = append(c.base, b), append(c.fresh, fresh)
	}
	if c.keyless {
		return nil
	}
	replay, err := c.slice(ctx, replaySlice, func(conn *connection, caller, n int) error {
		keys := c.answered[caller]
		return conn.post(keys[n%len(keys)], 2)
	})
	if keep {
		c.replay = append(c.replay, replay)
	}
	return err
}

// fill asks for new orders.
func (c *contender) fill(ctx context.Context) (measured, error) {
	c.answered = make([][]reprise.Key, connections)
	m, err := c.slice(ctx, peerSlice, func(conn *connection, caller, _ int) error {
		key := reprise.NewKey()
		if err := conn.post(key, 1); err != nil {
			return err
		}
		c.answered[caller] = append(c.answered[caller], key)
		return nil
	})
	c.count += m.count
	return m, err
}

func (c *contender) slice(ctx context.Context, d time.Duration, do func(conn *connection, caller, n int) error) (measured, error) {
	conns := make([]*connection, connections)
	for i := range conns {
		conn, err := dial(ctx, c.program.ready.Address, c.program.ready.Path)
		if err != nil {
			return measured{}, err
		}
		defer conn.close()
		conns[i] = conn
	}
	counts := make([]int, connections)
	return measureEach(ctx, connections, d, func(_ context.Context, caller int) error {
		counts[caller]++
		return do(conns[caller], caller, counts[caller]-1)
	})
}

// check makes sure that what was measured happened: one order and one event for
// each key, whether it was sent once or often.
func (s *stage) check(ctx context.Context, c *contender) error {
	for what, query := range map[string]string{"orders": "SELECT count(*) FROM orders", "events": c.program.ready.Events} {
		out, err := s.postgres.Exec(ctx, c.database, query)
		if err != nil {
			return err
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64); err != nil || n != c.count {
			return fmt.Errorf("%d orders were asked for, there are %s %s", c.count, strings.TrimSpace(out), what)
		}
	}
	return nil
}

// idle are the programs that stand by while c performs; the bare handler, which is
// its measure, is none of them.
func (s *stage) idle(c *contender) map[int]bool {
	idle := make(map[int]bool)
	for _, other := range s.running {
		idle[other.program.pid] = other != c
	}
	return idle
}

func reportPeers(r *report, s *stage, contenders []*contender, runs int) {
	for _, c := range contenders {
		reportPeer(r, s, c, runs)
	}
	i := slices.IndexFunc(contenders, func(c *contender) bool { return c.best })
	if i < 0 {
		return
	}
	best := contenders[i]
	for _, c := range contenders {
		if c.least == 0 {
			continue
		}
		// Each was measured right after the bare handler, which is what makes them
		// comparable.
		ratios, theirs := best.fresh.over(best.base), c.fresh.over(c.base)
		for i := range ratios {
			ratios[i] /= theirs[i]
		}
		r.add(row{
			Bench: "peers", Row: best.name + " / " + c.name, Ratio: median(ratios), Target: c.least, Runs: runs,
			Detail: fmt.Sprintf("%.2f to %.2f; %.0f/s against %.0f/s", slices.Min(ratios), slices.Max(ratios), best.fresh.rate(), c.fresh.rate()),
		})
	}
}

func reportPeer(r *report, s *stage, c *contender, runs int) {
	ratios, idle := c.fresh.over(c.base), s.idle(c)
	_, program, database := c.fresh.cost(c.program.pid, idle)
	target := 0.0
	if c.best {
		target = bareHandler.least
	}
	r.add(row{
		Bench: "peers", Row: c.name + " / bare", Ratio: median(ratios), Target: target, Runs: runs,
		Detail: fmt.Sprintf("%.0f/s against %.0f/s (%.2f to %.2f); p50 %.1f p99 %.1f ms; us of processor: database %.0f, server %.0f; foreign %.0f %%; %s",
			c.fresh.rate(), c.base.rate(), slices.Min(ratios), slices.Max(ratios), c.fresh.p50(), c.fresh.p99(),
			database, program, c.fresh.foreign(idle), strings.ReplaceAll(strings.Join(c.program.ready.Versions, ", "), "github.com/", "")),
	})
	if c.keyless {
		return
	}
	ratios = c.replay.over(c.base)
	_, program, database = c.replay.cost(c.program.pid, idle)
	r.add(row{
		Bench: "peers", Row: c.name + ", replay / bare", Ratio: median(ratios), Runs: runs,
		Detail: fmt.Sprintf("%.0f/s (%.2f to %.2f); p50 %.1f p99 %.1f ms; us of processor: database %.0f, server %.0f", c.replay.rate(),
			slices.Min(ratios), slices.Max(ratios), c.replay.p50(), c.replay.p99(), database, program),
	})
}
