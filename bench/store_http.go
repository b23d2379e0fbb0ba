// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise"
)

// hotKeys is how many keys the hot repeats are spread over: few enough for every
// cache.
const hotKeyCount = 64

// benchHTTP measures repeats over HTTP, with the programs of "peers".
func benchHTTP(ctx context.Context, r *report, o options) (err error) {
	stage, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	base, err := stage.start(ctx, bareHandler)
	if err != nil {
		return err
	}
	for _, p := range reprisePeers {
		c, err := stage.start(ctx, p)
		if err != nil {
			return err
		}
		if err := httpRepeats(ctx, r, o, base, c); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := stage.check(ctx, c); err != nil {
			return err
		}
	}
	return stage.check(ctx, base)
}

func httpRepeats(ctx context.Context, r *report, o options, base, c *contender) error {
	var keys []reprise.Key
	for range 5 {
		if _, err := c.fill(ctx); err != nil {
			return err
		}
		keys = slices.Concat(append(c.answered, keys)...)
	}
	var bare, cold, hot series
	for round := range o.runs + 1 {
		progress("%s, repeats over HTTP: round %d of %d", c.name, round, o.runs)
		b, err := base.fill(ctx)
		if err != nil {
			return err
		}
		all, err := c.repeat(ctx, keys)
		if err != nil {
			return err
		}
		few, err := c.repeat(ctx, keys[:min(hotKeyCount, len(keys))])
		if err != nil {
			return err
		}
		if round > 0 {
			bare, cold, hot = append(bare, b), append(cold, all), append(hot, few)
		}
	}
	for _, m := range []struct {
		what   string
		of     series
		target float64
	}{{"replay over HTTP", cold, 2.2}, {"replay over HTTP, hot keys", hot, 5}} {
		ratios := m.of.over(bare)
		_, program, database := m.of.cost(c.program.pid, nil)
		if !c.best {
			m.target = 0
		}
		r.add(row{
			Bench: "store", Row: c.name + ": " + m.what + " / bare", Ratio: median(ratios), Target: m.target, Runs: o.runs,
			Detail: fmt.Sprintf("%.2f to %.2f; %.0f/s against %.0f/s; p50 %.1f p99 %.1f ms; us of processor: database %.0f, server %.0f; %d keys; foreign %.0f %%",
				slices.Min(ratios), slices.Max(ratios), m.of.rate(), bare.rate(), m.of.p50(), m.of.p99(), database, program, len(keys), m.of.foreign(nil)),
		})
	}
	return nil
}

// repeat asks again for orders that exist, each connection for others.
func (c *contender) repeat(ctx context.Context, keys []reprise.Key) (measured, error) {
	return c.slice(ctx, replaySlice, func(conn *connection, caller, n int) error {
		return conn.post(keys[(caller+n*connections)%len(keys)], 2)
	})
}
