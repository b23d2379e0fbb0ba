// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

func newShop() *cobra.Command {
	var config shop.Config
	var devAuth bool
	c := &cobra.Command{
		Use:   "shop",
		Short: "Run the reference service: orders, payments and coupons",
		Long: "shop takes orders, payments and coupons, and can be asked for each of them any number\n" +
			"of times:\n\n" +
			"  reprise shop &\n" +
			"  curl -H 'Authorization: Bearer dev-me' -H 'Content-Type: application/json' \\\n" +
			"       -H 'Idempotency-Key: a-new-one-for-each-order' http://127.0.0.1:8080/orders \\\n" +
			"       -d '{\"ref\":\"A1\",\"sku\":\"cup\",\"quantity\":1,\"amount\":1200,\"currency\":\"EUR\"}'\n\n" +
			"Send that twice, and there is one order: http://127.0.0.1:8081/effects?caller=me&ref=A1\n\n" +
			"SIGTERM ends it after the requests in flight; SIGHUP reads the --tokens file again.",
		Args: cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			if c.Flags().Changed("dev-auth") {
				config.DevAuth = &devAuth
			}
			if err := spellOutZero(&config); err != nil {
				return err
			}
			config.Out = c.OutOrStdout()
			config.Logger = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			return runShop(untilSignal(c.Context()), config)
		}),
	}
	f := c.Flags()
	f.StringVar(&config.Listen, "listen", "127.0.0.1:8080", "address of the API; port 0 takes a free one")
	f.StringVar(&config.Admin, "admin", "127.0.0.1:8081", "address of the admin listener")
	f.StringVar(&config.DB, "db", "sqlite:shop.db", dbUsage)
	f.StringVar(&config.PSP, "psp", shop.Builtin, "base URL of the payment provider, or builtin")
	f.StringVar(&config.PSPDB, "psp-db", "", "file of the builtin provider, as sqlite:PATH (default that of --db with .psp after it)")
	f.DurationVar(&config.PSPTimeout, "psp-timeout", 5*time.Second, "how long one call of the provider may take")
	f.StringVar(&config.Sink, "sink", shop.Builtin, "where events go: builtin, to the shop's own fulfilment")
	f.DurationVar(&config.Lease, "lease", 30*time.Second, "how long a payment is left to a worker that gives no sign of life")
	f.DurationVar(&config.Wait, "wait", 2*time.Second, "how long a repeat waits for an attempt in progress; 0s answers it at once")
	f.DurationVar(&config.Retention, "retention", 24*time.Hour, "how long an answer is remembered")
	f.DurationVar(&config.Tombstone, "tombstone", 720*time.Hour, "how long its key is refused")
	f.DurationVar(&config.Drain, "drain", 10*time.Second, "how long requests in flight may go on after SIGTERM")
	f.BoolVar(&devAuth, "dev-auth", false, "take the token dev-NAME for caller NAME (default true on loopback without --tokens)")
	f.StringVar(&config.Tokens, "tokens", "", "file of lines TOKEN CALLER [revoked]")
	f.StringVar(&config.AdminToken, "admin-token", "", "token that the admin listener demands; required off loopback")
	return c
}

// dbUsage explains the flag --db.
const dbUsage = "database: sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"

// spellOutZero gives the durations of the flags that are 0 the meaning that their
// user had in mind. To shop.Config a zero is a default, and every flag has its own
// default, so that a zero here was given.
func spellOutZero(c *shop.Config) error {
	if c.Wait == 0 {
		c.Wait = shop.NoWait
	}
	if c.Drain == 0 {
		c.Drain = 1 // What is the least that is more than nothing.
	}
	for flag, d := range map[string]time.Duration{
		"--psp-timeout": c.PSPTimeout, "--lease": c.Lease, "--retention": c.Retention, "--tombstone": c.Tombstone,
	} {
		if d == 0 {
			return exit.Misused("leave it out for its default, or give a duration such as 30s", "%s 0s is no time at all", flag)
		}
	}
	return nil
}

func runShop(ctx context.Context, config shop.Config) error {
	s, err := shop.Open(ctx, config)
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer close(hangups)
	defer signal.Stop(hangups)
	go func() {
		for range hangups {
			if err := s.ReloadTokens(); err != nil {
				config.Logger.Error("the tokens were not read again; those that were known stay in force", "error", err)
			}
		}
	}()
	return errors.Join(s.Run(ctx), s.Close()) //nolint:contextcheck // closing must not be cut short
}
