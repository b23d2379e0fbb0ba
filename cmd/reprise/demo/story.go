// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
)

// story prints what happens, for people. A nil writer tells nothing.
type story struct{ w io.Writer }

func (s *story) printf(format string, args ...any) {
	if s.w != nil {
		_, _ = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *story) title(id, title string) { s.printf("\n%s  %s\n", id, title) }

func (s *story) step(text string) { s.printf("       %s\n", text) }

func (s *story) verdict(r Result) {
	s.printf("       -> %s: %d orders, %d charges, %d events, %d deliveries for %d intents (%.1f s)\n",
		r.Verdict, r.Orders, r.Charges, r.Events, r.Deliveries, r.Intents, r.Seconds)
	for _, note := range r.Notes {
		s.printf("       !! %s\n", note)
	}
}

// table prints the report's rows, one a scenario.
func (s *story) table(r Report) {
	if s.w == nil {
		return
	}
	s.printf("\n")
	t := tabwriter.NewWriter(s.w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "scenario\tattempts\torders\tcharges\tevents\tdeliveries\tsame id\tfaults\tverdict")
	for _, x := range r.Scenarios {
		same := "yes"
		if !x.SameID {
			same = "NO"
		}
		_, _ = fmt.Fprintf(t, "%s %s\t%d\t%d\t%d\t%d\t%d\t%s\t%d\t%s\n",
			x.ID, x.Title, x.Attempts, x.Orders, x.Charges, x.Events, x.Deliveries, same, x.FaultsFired, x.Verdict)
	}
	_ = t.Flush()
	s.printf("\n%s on %s in %.1f s\n", strings.ToUpper(string(r.Verdict)), r.Database, r.Seconds)
}

// cause is the innermost reason of a failed attempt, in few words.
func cause(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
