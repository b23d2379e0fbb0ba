// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// options are what the command line says to every benchmark.
type options struct {
	// runs is the number of rounds, of which the median counts.
	runs int
	// rows is the size of the large ledger of "growth", 0 the usual one.
	rows int
	// only, if not empty, names the things to measure; baselines are always measured.
	only []string
}

// chosen reports whether name is to be measured.
func (o options) chosen(name string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(o.only, func(s string) bool { return strings.Contains(name, s) })
}

// size is the number of rows of a ledger that usually has so many.
func (o options) size(usual int) int {
	if o.rows != 0 {
		return o.rows
	}
	return usual
}

// progress tells a human what is going on; rows go to standard output.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
