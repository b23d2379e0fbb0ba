// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"flag"
	"testing"

	"github.com/reprise-go/reprise/torture/crash"
)

// full asks for every mode at every point, for all pairs and for all schedules
// ("make crash"). Otherwise it is the part that every change has to pass.
var full = flag.Bool("full", false, "run the whole matrix of crash points")

// subject is a driver on a database. A variant is another way to use a driver,
// and is tried with fewer modes unless everything is asked for.
type subject struct {
	name, program string
	variant       bool
	// open makes a database with the library's tables and those of the service.
	open func(*testing.T) *database
}

var subjects = []subject{
	{"postgres", "postgres", false, openShared},
	{"pgxv5", "pgxv5", false, openShared},
	{"pgxv5, one message", "pgxv5/queue", true, openShared},
	{"mysql", "mysql", false, func(t *testing.T) *database {
		t.Helper()
		d := newMariaDB(t)
		d.migrateUp(t, openMySQL)
		d.parameters = "?multiStatements=true&interpolateParams=true"
		return d
	}},
	{"mysql, a message for each statement", "mysql", true, func(t *testing.T) *database {
		t.Helper()
		d := newMariaDB(t)
		d.migrateUp(t, openMySQL)
		return d
	}},
}

// openShared makes the database that both PostgreSQL drivers work on.
func openShared(t *testing.T) *database {
	t.Helper()
	d := newPostgres(t)
	d.migrateUp(t, openPostgres)
	return d
}

// service is the subject's service on a fresh database.
func (s subject) service(t *testing.T, operation string) (*database, *crash.Wire) {
	t.Helper()
	d := s.open(t)
	queries, want := counts(d.driver, operation)
	return d, d.subject(s.program+" "+operation, queries, want)
}

// modes are those to try: all of them, or those that differ most. A run of the
// staged operation is long, so there the process dies and nothing else happens.
func (s subject) modes(w *crash.Wire, operation string) []string {
	refusal := w.Modes[len(w.Modes)-5].Name // a conflict
	switch {
	case raceDetector:
		return []string{crash.Reset.Name, refusal}
	case *full:
		return names(w.Modes)
	case operation == stagedMode:
		return []string{crash.Kill.Name}
	case s.variant:
		return []string{crash.Reset.Name, refusal}
	}
	return []string{crash.Reset.Name, crash.Partition.Name, crash.Kill.Name, crash.Stop.Name, refusal}
}

// TestSingles strikes with one fault in each attempt, at every point.
func TestSingles(t *testing.T) {
	t.Parallel()
	for _, s := range subjects {
		for _, operation := range []string{atomicMode, stagedMode} {
			if operation == stagedMode && s.variant && !*full {
				continue
			}
			t.Run(s.name+", "+operation, func(t *testing.T) {
				t.Parallel()
				_, w := s.service(t, operation)
				r, err := crash.Singles(t.Context(), w, crash.Options{}, s.modes(w, operation)...)
				check(t, s.name+", "+operation, r, err)
			})
		}
	}
}

// TestPairs strikes again in the repeat that follows. The staged operation has
// thousands of pairs, so its connections only break.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, s := range subjects {
		for _, operation := range []string{atomicMode, stagedMode} {
			if !*full && (operation == stagedMode || s.variant || s.name == "postgres") || operation == stagedMode && s.variant {
				continue
			}
			t.Run(s.name+", "+operation, func(t *testing.T) {
				t.Parallel()
				_, w := s.service(t, operation)
				modes := []string{crash.Reset.Name}
				if *full && operation == atomicMode {
					modes = append(modes, crash.Kill.Name, crash.Freeze.Name)
				}
				r, err := crash.Pairs(t.Context(), w, crash.Options{}, modes...)
				check(t, s.name+", "+operation+", pairs", r, err)
			})
		}
	}
}
