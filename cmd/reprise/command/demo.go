// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/reprise-go/reprise/cmd/reprise/demo"
	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// maxClients keeps a herd below what the ports of one loopback address can hold.
const maxClients = 10_000

func newDemo() *cobra.Command {
	var asJSON, serve bool
	var db, keep string
	var clients int
	c := &cobra.Command{
		Use:   "demo",
		Short: "Drive real orders and payments through the seven worst breakpoints",
		Long: "demo starts the shop, the payment provider and a fault proxy on free loopback ports,\n" +
			"with SQLite files in a temporary directory. A real client orders and pays while\n" +
			"connections are cut, processes are killed and a thousand clients come at once, and\n" +
			"every effect is counted where it happened. It takes less than 30 seconds and ends\n" +
			"with 0 only if every fault fired and every count is right.\n\n" +
			"--db postgres and --db mysql start a server of their own, from the binaries of this\n" +
			"machine, for as long as the demo lasts. --db URL takes the database that you name: it\n" +
			"gets the shop's tables, and keeps the rows of a caller that is new each time.",
		Args: cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			if clients < 1 || clients > maxClients {
				return exit.Misused("the default is 1000", "--clients %d: it must be from 1 to %d", clients, maxClients)
			}
			o := demo.Options{DB: db, Keep: keep, Clients: clients, Story: c.OutOrStdout()}
			if asJSON {
				o.Story = nil
			}
			if serve {
				o.Serve = func(ctx context.Context, at demo.Addresses) {
					announceDemo(c.ErrOrStderr(), at)
					<-ctx.Done()
				}
			}
			return runDemo(c, o, asJSON)
		}),
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print the report as JSON instead of the story")
	f.IntVar(&clients, "clients", 1000, "how many clients get 503 at the same time in R15.7")
	f.StringVar(&db, "db", "", "the shop's database: a URL, or postgres or mysql to start one (default a SQLite file)")
	f.StringVar(&keep, "keep", "", "keep databases and logs in this empty or new directory")
	f.BoolVar(&serve, "serve", false, "leave the shop running afterwards, until interrupted")
	return c
}

func runDemo(c *cobra.Command, o demo.Options, asJSON bool) error {
	report, err := demo.Run(untilSignal(c.Context()), o)
	_, explained := errors.AsType[*exit.Error](err)
	switch {
	case explained:
		return err
	case errors.Is(err, demo.ErrNotEmpty):
		return exit.Misused("name a new or an empty directory", "--keep: %w", err)
	case err != nil:
		return &exit.Error{
			Code: exit.Environment, Err: err,
			Hint: "the demo needs free loopback ports and a writable temporary directory",
		}
	}
	if asJSON {
		out := json.NewEncoder(c.OutOrStdout())
		out.SetIndent("", "  ")
		if err := out.Encode(report); err != nil {
			return err
		}
	}
	switch report.Verdict {
	case demo.Pass:
		return nil
	case demo.Inconclusive:
		return &exit.Error{
			Code: exit.Inconclusive, Hint: "run it again with --keep DIR and look at the logs",
			Err: errors.New("a fault did not fire, so nothing was proven"),
		}
	case demo.Fail:
	}
	return &exit.Error{
		Code: exit.Failure, Hint: "the databases and logs are kept; run it again with --keep DIR to choose where",
		Err: errors.New("a count is wrong or a repeat named another resource"),
	}
}

func announceDemo(w io.Writer, at demo.Addresses) {
	_, _ = fmt.Fprintf(w, `the shop runs until you interrupt it:
  api       http://%s   (Authorization: Bearer dev-NAME)
  admin     http://%s   (/effects?caller=%s&ref=demo-R15.1, /ledger, /metrics)
  provider  http://%s
`, at.API, at.Admin, at.Caller, at.Provider)
}
