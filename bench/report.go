// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// row is one measured number and what it must reach. A target of 0 means that
// the row only informs.
type row struct {
	Bench  string  `json:"bench"`
	Row    string  `json:"row"`
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target"`
	// AtMost turns the target into an upper bound.
	AtMost bool   `json:"at_most,omitempty"`
	Holds  bool   `json:"holds"`
	Runs   int    `json:"runs"`
	Detail string `json:"detail"`
}

// report prints rows as they come.
type report struct {
	json   bool
	out    io.Writer
	titled bool
	missed bool
}

func (r *report) add(w row) {
	switch {
	case w.Target == 0:
		w.Holds = true
	case w.AtMost:
		w.Holds = w.Ratio <= w.Target
	default:
		w.Holds = w.Ratio >= w.Target
	}
	r.missed = r.missed || !w.Holds
	if r.json {
		_ = json.NewEncoder(r.out).Encode(w)
		return
	}
	if !r.titled {
		fmt.Fprintf(r.out, "%-8s %-46s %8s %10s %-6s %s\n", "bench", "row", "measured", "target", "", "detail")
		r.titled = true
	}
	target, verdict := "-", ""
	if w.Target != 0 {
		sign := ">="
		if w.AtMost {
			sign = "<="
		}
		target, verdict = fmt.Sprintf("%s %.2f", sign, w.Target), "holds"
		if !w.Holds {
			verdict = "MISSED"
		}
	}
	fmt.Fprintf(r.out, "%-8s %-46s %8.2f %10s %-6s %s\n", w.Bench, w.Row, w.Ratio, target, verdict, w.Detail)
}

// median of a non-empty list.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
