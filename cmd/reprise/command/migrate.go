// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
	"github.com/reprise-go/reprise/store/migrate"
)

func newMigrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database's schema to what this program needs",
		Long: "migrate changes, shows or prints the tables of the library and of the shop. The shop\n" +
			"migrates its database by itself when it starts.",
		Args: cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error { return c.Help() }),
	}
	c.AddCommand(newMigrateUp(), newMigrateStatus(), newMigratePrint())
	return c
}

func newMigrateUp() *cobra.Command {
	var db string
	var asJSON bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that the database lacks",
		Args:  cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			return withDatabase(c.Context(), db, func(d *shop.Database) error {
				if err := d.Migrate(c.Context()); err != nil {
					return cantMigrate(err)
				}
				return showMigrations(c, d, asJSON)
			})
		}),
	}
	migrateFlags(c, &db, &asJSON)
	return c
}

func newMigrateStatus() *cobra.Command {
	var db string
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations a database has",
		Args:  cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			path, err := shop.DatabasePath("--db", db)
			if err != nil {
				return err
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return exit.Refused("'reprise migrate up' makes it", "there is no database %s", path)
			}
			return withDatabase(c.Context(), db, func(d *shop.Database) error { return showMigrations(c, d, asJSON) })
		}),
	}
	migrateFlags(c, &db, &asJSON)
	return c
}

func newMigratePrint() *cobra.Command {
	return &cobra.Command{
		Use:   "print",
		Short: "Print the whole schema as SQL",
		Long:  "print writes the schema as one script, for those who apply schemas with a tool of their own.",
		Args:  cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			for _, s := range new(shop.Database).Schemas() {
				text, err := migrate.SQL(s.Database)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "-- schema %s\n%s", s.Name, text); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func migrateFlags(c *cobra.Command, db *string, asJSON *bool) {
	c.Flags().StringVar(db, "db", "sqlite:shop.db", "database, as sqlite:PATH")
	c.Flags().BoolVar(asJSON, "json", false, "print one line of JSON")
}

// withDatabase opens the database for f.
func withDatabase(ctx context.Context, url string, f func(*shop.Database) error) error {
	path, err := shop.DatabasePath("--db", url)
	if err != nil {
		return err
	}
	d, err := shop.OpenDatabase(ctx, shop.DefaultDriver, path)
	if err != nil {
		return exit.Refused("see that the file can be written and is in use by no other program",
			"the database %s can't be used: %w", path, err)
	}
	return errors.Join(f(d), d.Close()) //nolint:contextcheck // closing must not be cut short
}

func cantMigrate(err error) error {
	hint := "see that the file can be written and is in use by no other program"
	if errors.Is(err, migrate.ErrNewer) {
		hint = "use the program that migrated it, or a newer one"
	}
	return exit.Refused(hint, "%w", err)
}

// step is one migration as it is shown.
type step struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func showMigrations(c *cobra.Command, d *shop.Database, asJSON bool) error {
	var steps []step
	for _, s := range d.Schemas() {
		all, err := migrate.Status(c.Context(), s.Database)
		if err != nil {
			return cantMigrate(err)
		}
		for _, m := range all {
			steps = append(steps, step{s.Name, m.Version, m.Name, m.Applied})
		}
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(steps)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "SCHEMA\tMIGRATION\tSTATE")
	for _, s := range steps {
		state := "missing"
		if s.Applied {
			state = "applied"
		}
		_, _ = fmt.Fprintf(w, "%s\t%03d_%s\t%s\n", s.Schema, s.Version, s.Name, state)
	}
	return w.Flush()
}
