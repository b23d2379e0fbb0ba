// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// benchSQLiteDrivers compares the drivers with each other on the transaction by
// hand, which is what a driver can be chosen by (docs/adr/0002).
func benchSQLiteDrivers(ctx context.Context, r *report, runs int) error {
	for _, callers := range []int{1, 64} {
		rates := make([][]float64, len(sqliteDrivers))
		for range runs {
			for i, driver := range sqliteDrivers {
				m, err := inDirectory(func(dir string) (measured, error) {
					k, err := openMutex(ctx, driver, filepath.Join(dir, "bench.db"))
					if err != nil {
						return measured{}, err
					}
					defer func() { _ = k.close() }()
					return measure(ctx, callers, slice, k.do)
				})
				if err != nil {
					return fmt.Errorf("%s: %w", driver.name, err)
				}
				rates[i] = append(rates[i], m.rate)
			}
		}
		for i, driver := range sqliteDrivers[1:] {
			r.add(row{
				Bench: "sqlite", Row: fmt.Sprintf("%s / %s by hand, %d callers", driver.module, sqliteDrivers[0].module, callers),
				Ratio: median(rates[i+1]) / median(rates[0]), Runs: runs,
				Detail: fmt.Sprintf("%.0f/s (%.0f to %.0f) against %.0f/s (%.0f to %.0f)",
					median(rates[i+1]), slices.Min(rates[i+1]), slices.Max(rates[i+1]),
					median(rates[0]), slices.Min(rates[0]), slices.Max(rates[0])),
			})
		}
	}
	return nil
}
