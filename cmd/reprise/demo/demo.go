// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"
)

// Options of a demo.
type Options struct {
	// Keep is an empty or absent directory that keeps all files. Defaults to a
	// temporary directory that is removed.
	Keep string
	// Clients is how many clients get 503 at the same time in R15.7. Defaults to
	// 1,000.
	Clients int
	// Story receives what happens, for people. Nil tells nothing.
	Story io.Writer
	// Serve, if not nil, is called with the addresses when all scenarios are
	// done; the shop runs until it returns.
	Serve func(ctx context.Context, api, admin, provider string)
}

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
	st.printf("a shop, a payment provider and a fault proxy on loopback; files in %s\n", dir)
	w, err := newWorld(ctx, dir, report.Seed, cmp.Or(o.Clients, 1000))
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
		o.Serve(ctx, w.shop.addr["api"], w.shop.addr["admin"], w.psp.addr["psp"])
	}
	if err := w.close(); err != nil {
		return report, fmt.Errorf("end the processes: %w; their logs are in %s", err, dir)
	}
	if report.Verdict == Pass {
		dispose()
	} else {
		st.printf("the databases and logs are kept in %s\n", dir)
	}
	return report, nil
}
