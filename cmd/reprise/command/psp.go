// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/cmd/reprise/serve"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// pspDrain bounds how long a provider that ends waits for charges in flight.
const pspDrain = 10 * time.Second

func newPSP() *cobra.Command {
	var listen, db string
	var config psp.Config
	c := &cobra.Command{
		Use:   "psp",
		Short: "Run the payment-provider simulator",
		Long: "psp runs a payment provider that keeps its charges in a SQLite file of its own and\n" +
			"fails on demand:\n\n" +
			"  curl -d '{\"next\":1,\"fault\":\"commit-then-reset\"}' \\\n" +
			"       -H 'Content-Type: application/json' http://127.0.0.1:8090/faults\n\n" +
			"Faults: commit-then-reset, hang, hang-before, 500-after-commit, 500, 409.",
		Args: cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			path, err := shop.FilePath("--db", db)
			if err != nil {
				return err
			}
			config.Path = path
			return runPSP(c, listen, config)
		}),
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8090", "address to listen on; port 0 takes a free one")
	f.StringVar(&db, "db", "sqlite:psp.db", "database of the charges, as sqlite:PATH")
	f.DurationVar(&config.Latency, "latency", 0, "how long a charge takes")
	f.Int64Var(&config.DeclineOver, "decline-over", psp.DefaultDeclineOver,
		"decline charges over this amount, in minor units")
	return c
}

func runPSP(c *cobra.Command, listen string, config psp.Config) error {
	ctx := untilSignal(c.Context())
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	p, err := psp.Open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	l, err := serve.Listen(ctx, "psp", listen, p.Handler(), log)
	if err != nil {
		return err
	}
	l.OnDrain(p.Release)
	if err := l.Announce(c.OutOrStdout()); err != nil {
		return err
	}
	return l.Run(ctx, pspDrain)
}
