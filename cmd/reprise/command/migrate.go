// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		Long: "migrate changes, shows or prints two schemas: \"reprise\", the tables of the library, and\n" +
			"\"shop\", those of the shop, which migrates its database by itself when it starts.\n" +
			"A service of your own needs the first one only: --schema reprise.\n\n" +
			"A migration only adds, so the programs that are running go on; a program that is older\n" +
			"than its database doesn't start. So migrate first, and then replace the programs.",
		Args: cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error { return c.Help() }),
	}
	c.AddCommand(newMigrateUp(), newMigrateStatus(), newMigrateSQL())
	return c
}

// migration is what the commands below were asked for.
type migration struct {
	db, schema string
	json       bool
}

func (m *migration) flags(c *cobra.Command) {
	c.Flags().StringVar(&m.db, "db", "sqlite:shop.db", dbUsage)
	c.Flags().StringVar(&m.schema, "schema", "", "only this one: reprise or shop")
}

func newMigrateUp() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that the database lacks",
		Args:  cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			return m.withDatabase(c.Context(), func(d *shop.Database) error {
				schemas, err := m.choose(d.Schemas())
				if err != nil {
					return err
				}
				for i, s := range schemas {
					schemas[i].Database = told{s.Database, s.Name, c.ErrOrStderr()}
				}
				if err := d.Migrate(c.Context(), schemas...); err != nil {
					return err
				}
				return m.show(c, d, schemas)
			})
		}),
	}
	m.flags(c)
	c.Flags().BoolVar(&m.json, "json", false, "print one line of JSON")
	return c
}

// told tells of each migration before it is applied, because one may take long.
type told struct {
	migrate.Database

	schema string
	to     io.Writer
}

func (t told) ApplyMigration(ctx context.Context, version int, statements string) error {
	_, _ = fmt.Fprintf(t.to, "applying migration %03d of the schema %s\n", version, t.schema)
	return t.Database.ApplyMigration(ctx, version, statements)
}

func newMigrateStatus() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations a database has",
		Args:  cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			u, err := shop.ParseURL("--db", m.db)
			if err != nil {
				return err
			}
			if _, err := os.Stat(u.Path()); u.Path() != "" && errors.Is(err, fs.ErrNotExist) {
				return exit.Refused("'reprise migrate up' makes it", "there is no database %s", u)
			}
			return m.withDatabase(c.Context(), func(d *shop.Database) error {
				schemas, err := m.choose(d.Schemas())
				if err != nil {
					return err
				}
				return m.show(c, d, schemas)
			})
		}),
	}
	m.flags(c)
	c.Flags().BoolVar(&m.json, "json", false, "print one line of JSON")
	return c
}

func newMigrateSQL() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use:   "sql",
		Short: "Print the whole schema as SQL",
		Long: "sql writes the schema as one script, for those who apply schemas with a tool of their\n" +
			"own. It looks at the scheme of --db only and opens nothing:\n\n" +
			"  reprise migrate sql --db postgres: --schema reprise",
		Args: cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			all, err := shop.SchemasFor("--db", m.db)
			if err != nil {
				return err
			}
			schemas, err := m.choose(all)
			if err != nil {
				return err
			}
			for _, s := range schemas {
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
	m.flags(c)
	return c
}

// choose returns the schemas that --schema asks for.
func (m *migration) choose(all []shop.Schema) ([]shop.Schema, error) {
	if m.schema == "" {
		return all, nil
	}
	for _, s := range all {
		if s.Name == m.schema {
			return []shop.Schema{s}, nil
		}
	}
	return nil, exit.Misused("say reprise or shop", "--schema %q: there is no such schema", m.schema)
}

// withDatabase opens the database for f.
func (m *migration) withDatabase(ctx context.Context, f func(*shop.Database) error) error {
	u, err := shop.ParseURL("--db", m.db)
	if err != nil {
		return err
	}
	d, err := shop.OpenDatabase(ctx, u, "")
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.Close()) //nolint:contextcheck // closing must not be cut short
}

// step is one migration as it is shown.
type step struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func (m *migration) show(c *cobra.Command, d *shop.Database, schemas []shop.Schema) error {
	var steps []step
	for _, s := range schemas {
		all, err := d.Status(c.Context(), s)
		if err != nil {
			return err
		}
		for _, m := range all {
			steps = append(steps, step{s.Name, m.Version, m.Name, m.Applied})
		}
	}
	if m.json {
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
