// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options of a demo.
type Options struct {
	// DB is the URL of the shop's database, which keeps the rows of the story. The
	// words postgres, mysql and mariadb start a server of that kind, with nothing in
	// it, that ends with the demo. Defaults to a SQLite file beside the other files.
	DB string
	// Keep is an empty or absent directory that keeps all files. Defaults to a
	// temporary directory that is removed.
	Keep string
	// Clients is how many clients get 503 at the same time in R15.7. Defaults to
	// 1,000.
	Clients int
	// Story receives what happens, for people. Nil tells nothing.
	Story io.Writer
	// Serve, if not nil, is called when all scenarios are done; the shop runs until
	// it returns.
	Serve func(context.Context, Addresses)
}

// Addresses are those of the listeners, as HOST:PORT, and the caller whom the
// story was about.
type Addresses struct{ API, Admin, Provider, Caller string }

// Run plays every breakpoint and returns the report. An error means that the
// demo could not be played, never that a count was wrong: that is in the report.
func Run(ctx context.Context, o Options) (report Report, err error) {
	began := time.Now()
	report.Seed = began.UnixMilli() // Below 2^53, so that every reader of JSON gets it right.
	st := &story{w: o.Story}

	dir, dispose, err := workDir(o.Keep)
	if err != nil {
		return report, err
	}
	db, err := openDatabase(ctx, o.DB, dir, report.Seed)
	if err != nil {
		dispose() // There is nothing in it yet.
		return report, err
	}
	defer func() { err = errors.Join(err, db.stop()) }() //nolint:contextcheck // a server must be ended in any case
	report.Database = db.product
	st.printf("a shop, a payment provider and a fault proxy on loopback; files in %s\n", dir)
	st.printf("the shop's database is %s, %s\n", db.product, db.place)
	w, err := newWorld(ctx, dir, db, report.Seed, cmp.Or(o.Clients, 1000))
	if err != nil {
		return report, err
	}
	for i, sc := range breakpoints {
		st.printf("\n[%d/%d]", i+1, len(breakpoints))
		report.Scenarios = append(report.Scenarios, w.play(ctx, sc, st))
	}
	report.Seconds = seconds(time.Since(began))
	report.judge()
	st.table(report)
	if o.Serve != nil {
		o.Serve(ctx, Addresses{w.shop.addr["api"], w.shop.addr["admin"], w.psp.addr["psp"], db.caller})
	}
	if err := w.close(); err != nil {
		return report, fmt.Errorf("end the processes: %w; their logs are in %s", err, dir)
	}
	if report.Verdict == Pass {
		dispose()
	} else {
		st.printf("the files and logs are kept in %s\n", dir)
	}
	return report, nil
}
