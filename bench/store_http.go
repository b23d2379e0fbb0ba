// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise"
)

// remembering is reprise where it answers hurried repeats from memory.
var remembering = peer{name: "reprise on pgx, from memory", program: "reprise", args: []string{"-driver", "pgx", "-cache", "10s"}, ours: true}

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
	for _, p := range append(slices.Clone(reprisePeers), remembering) {
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
	var bare, repeats series
	for round := range o.runs + 1 {
		progress("%s, repeats over HTTP: round %d of %d", c.name, round, o.runs)
		b, err := base.fill(ctx)
		if err != nil {
			return err
		}
		m, err := c.repeat(ctx, keys)
		if err != nil {
			return err
		}
		if round > 0 {
			bare, repeats = append(bare, b), append(repeats, m)
		}
	}
	target := 0.0
	switch {
	case c.name == remembering.name:
		target = 5
	case c.best:
		target = 2.2
	}
	ratios := repeats.over(bare)
	_, program, database := repeats.cost(c.program.pid, nil)
	r.add(row{
		Bench: "store", Row: c.name + ": replay over HTTP / bare handler", Ratio: median(ratios), Target: target, Runs: o.runs,
		Detail: fmt.Sprintf("%.2f to %.2f; %.0f/s against %.0f/s; p50 %.1f p99 %.1f ms; us of processor: database %.0f, server %.0f; %d keys; foreign %.0f %%",
			slices.Min(ratios), slices.Max(ratios), repeats.rate(), bare.rate(), repeats.p50(), repeats.p99(), database, program, len(keys), repeats.foreign(nil)),
	})
	return nil
}

// repeat asks again for orders that exist, each connection for others.
func (c *contender) repeat(ctx context.Context, keys []reprise.Key) (measured, error) {
	return c.slice(ctx, replaySlice, func(conn *connection, caller, n int) error {
		return conn.post(keys[(caller+n*connections)%len(keys)], 2)
	})
}
