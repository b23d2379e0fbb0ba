// SPDX-License-Identifier: Apache-2.0

// Package command holds the commands of reprise, one file and one script test
// each.
package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// Main runs the program with its arguments and returns its exit code: 0 when
// all went well, 1 for a violation or a failure, 2 when a check proved nothing,
// 3 for wrong usage, 4 when something around the program refused.
func Main(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return int(exit.OK)
	}
	// What no command has classified comes from the reading of the command line.
	if _, ok := errors.AsType[*exit.Error](err); !ok {
		err = exit.Misused("run 'reprise --help' to see the commands", "%w", err)
	}
	exit.Explain(stderr, err)
	return int(exit.CodeOf(err))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "reprise",
		Short: "Make retries safe from end to end, and prove it",
		Long: "reprise makes retries safe from end to end: a lost response, a crash or a retry\n" +
			"storm never becomes a second order, charge or event.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.Misused("run '"+c.CommandPath()+" --help' to see the flags", "%w", err)
	})
	root.AddCommand(newDemo(), newMigrate(), newPSP(), newShop(), newVersion())
	return root
}

// run is the RunE of a command: an error that doesn't know its exit code is a
// failure of the command, not a mistake of the one who typed it.
func run(f func(c *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		err := f(c)
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[*exit.Error](err); ok {
			return err
		}
		return &exit.Error{Code: exit.Failure, Err: err}
	}
}
