// SPDX-License-Identifier: Apache-2.0

// Command bench measures reprise against itself and against what people do
// without it, always as ratios within one run on one machine.
//
//	go run ./bench NAME [--json] [--runs N] [--rows N] [--only TEXT,...]
//
// It exits with 1 if a row misses its target.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// benches holds every benchmark by name.
var benches = map[string]func(ctx context.Context, r *report, o options) error{
	"client":  benchClient,
	"growth":  benchGrowth,
	"peers":   benchPeers,
	"schemes": benchSchemes,
	"sqlite":  benchSQLite,
	"store":   benchStore,
}

func main() { os.Exit(run()) }

func run() int {
	names := append(slices.Sorted(maps.Keys(benches)), "all")
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: bench %s [--json] [--runs N] [--rows N] [--only TEXT,...]\n", strings.Join(names, "|"))
	}
	asJSON := flags.Bool("json", false, "one JSON object per row")
	runs := flags.Int("runs", 5, "rounds, of which the median counts")
	rows := flags.Int("rows", 0, "size of the large ledger of growth (default 10 million on PostgreSQL, 1 million on the others)")
	only := flags.String("only", "", "of growth, peers and store, only the things whose names contain one of these texts")
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		if err := runHold(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			return 4
		}
		return 0
	}
	if len(os.Args) < 2 || !slices.Contains(names, os.Args[1]) {
		flags.Usage()
		return 3
	}
	if err := flags.Parse(os.Args[2:]); err != nil || *runs < 1 || *rows != 0 && *rows < 2*fewRows {
		flags.Usage()
		return 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &report{json: *asJSON, out: os.Stdout}
	o := options{runs: *runs, rows: *rows}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range names[:len(names)-1] {
		if os.Args[1] != name && os.Args[1] != "all" {
			continue
		}
		if err := benches[name](ctx, r, o); err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			return 4
		}
	}
	if r.missed {
		return 1
	}
	return 0
}
