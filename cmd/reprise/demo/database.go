// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
	"github.com/reprise-go/reprise/internal/dbserver"
)

// database is where the shop of a demo keeps its rows.
type database struct {
	// url is what the shop is given, and caller whom the story is about: on a
	// database that others have used, one that nobody was before.
	url, caller string
	// product says which database it is, and place where.
	product, place string
	// stop ends the server, if it was started for the demo.
	stop func() error
}

// throwaway is the name of the database on a server that lives as long as the demo.
const throwaway = "demo"

// openDatabase finds the database that a demo was asked for, starts it if need be,
// and makes sure that it can be used. Errors of a database that can't are of
// package exit.
func openDatabase(ctx context.Context, asked, dir string, seed int64) (d database, err error) {
	d = database{url: asked, caller: "demo", stop: func() error { return nil }}
	switch asked {
	case "":
		d.url = "sqlite:" + filepath.Join(dir, "shop.db")
	case "postgres":
		d.url, d.stop, err = startPostgres(ctx)
	case "mysql", "mariadb":
		d.url, d.stop, err = startMariaDB(ctx)
	default:
		d.caller += "-" + strconv.FormatInt(seed, 36)
	}
	if err != nil {
		return d, err
	}
	if err := d.describe(ctx); err != nil {
		return d, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *database) describe(ctx context.Context) error {
	u, err := shop.ParseURL("--db", d.url)
	if err != nil {
		return err
	}
	d.place = u.String()
	db, err := shop.OpenDatabase(ctx, u, "")
	if err != nil {
		return err
	}
	d.product, err = db.Product(ctx)
	return errors.Join(err, db.Close())
}

// The servers of a demo are durable, because what is shown has to hold where the
// power may go.

func startPostgres(ctx context.Context) (url string, stop func() error, err error) {
	s, err := dbserver.StartPostgres(ctx, dbserver.PostgresOptions{Durable: true})
	if err != nil {
		return "", nil, exit.Refused("or name a server that runs: --db postgres://USER@HOST/DATABASE", "PostgreSQL can't be started: %w", err)
	}
	if err := s.CreateDatabase(ctx, throwaway, ""); err != nil {
		return "", nil, errors.Join(err, s.Stop())
	}
	return s.DSN(throwaway), s.Stop, nil
}

func startMariaDB(ctx context.Context) (url string, stop func() error, err error) {
	s, err := dbserver.StartMariaDB(ctx, dbserver.MariaDBOptions{Durable: true})
	if err != nil {
		return "", nil, exit.Refused("or name a server that runs: --db mysql://USER@HOST/DATABASE", "MariaDB can't be started: %w", err)
	}
	if err := s.CreateDatabase(ctx, throwaway); err != nil {
		return "", nil, errors.Join(err, s.Stop())
	}
	return fmt.Sprintf("mysql://root@%s/%s", s.Addr(), throwaway), s.Stop, nil
}
