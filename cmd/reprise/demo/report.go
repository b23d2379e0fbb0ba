// SPDX-License-Identifier: Apache-2.0

package demo

import "time"

// Verdict is how a scenario, or the whole demo, ended.
type Verdict string

const (
	// Pass: the fault fired and every count is right.
	Pass Verdict = "pass"
	// Fail: a count is wrong, or an answer named another resource.
	Fail Verdict = "fail"
	// Inconclusive: the fault did not fire, so nothing was proven.
	Inconclusive Verdict = "inconclusive"
)

// Report is what "reprise demo --json" prints.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Database is the one that the effects were counted in, such as "SQLite 3.54.1".
	Database  string   `json:"database"`
	Seed      int64    `json:"seed"`
	Seconds   float64  `json:"seconds"`
	Scenarios []Result `json:"scenarios"`
}

// Result is one row of the report. Orders, Charges, Events and Deliveries are
// counted where they happened. Events and Deliveries are counted for each kind
// by itself, order.created and payment.captured, and the number is that of the
// kind that is furthest from right.
type Result struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Intents is how many business operations of each kind the clients wanted.
	Intents int `json:"intents"`
	// Attempts is how many requests the clients sent for the intent that the fault
	// hit, repeats of the calling program included.
	Attempts    int      `json:"attempts"`
	Orders      int      `json:"orders"`
	Charges     int      `json:"charges"`
	Events      int      `json:"events"`
	Deliveries  int      `json:"deliveries"`
	SameID      bool     `json:"same_id"`
	FaultsFired int      `json:"faults_fired"`
	Seconds     float64  `json:"seconds"`
	Verdict     Verdict  `json:"verdict"`
	Notes       []string `json:"notes,omitempty"`
}

// seconds is d in seconds, to the millisecond. The quotient is the float64 next to
// it, which is written with no more than three digits after the point.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

// judge sets the verdict from the counts.
func (r *Result) judge() {
	switch {
	case r.Orders != r.Intents || r.Charges != r.Intents || r.Events != r.Intents || r.Deliveries != r.Intents:
		r.Verdict = Fail
	case !r.SameID || len(r.Notes) > 0:
		r.Verdict = Fail
	case r.FaultsFired == 0:
		r.Verdict = Inconclusive
	default:
		r.Verdict = Pass
	}
}

// judge sums up: one failure fails the demo, and nothing unproven passes.
func (r *Report) judge() {
	r.Verdict = Pass
	for _, s := range r.Scenarios {
		if s.Verdict == Fail {
			r.Verdict = Fail
			return
		}
		if s.Verdict != Pass {
			r.Verdict = Inconclusive
		}
	}
	if len(r.Scenarios) == 0 {
		r.Verdict = Inconclusive
	}
}
