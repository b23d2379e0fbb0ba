// SPDX-License-Identifier: Apache-2.0

// Package storetest proves that a storage driver keeps the protocol.
//
// Every rule of spec/PROTOCOL.md that storage must keep is a subtest named by
// its number, such as L3_effect_and_record_become_visible_together. A failure
// prints the sentence of the rule that broke. There is nothing to configure and
// nothing to skip: a driver that implements store.Driver passes all of it or
// does not keep the protocol.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness[*sql.Tx]{
//			Create: func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "store.db") },
//			Open:   open,
//			Plain:  func(tb testing.TB, name string) storetest.Plain[*sql.Tx] { return storetest.PlainSQL(openDB(tb, name)) },
//			Age:    age,
//		})
//	}
//
// The suite injects no clock. Time passes because Age rewrites every stored
// time, so that a driver is judged as it runs in production, by the clock of its
// database. The suite counts effects, not calls: rows that an application
// committed, seen by a connection that is not the driver's.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/store"
)

// Harness is how the suite reaches one kind of database. All fields are
// required. The functions may be called from several tests at once.
type Harness[TTx any] struct {
	// Create makes an empty database and returns its name, such as a path or a
	// URL. It is removed when tb ends.
	Create func(tb testing.TB) (name string)

	// Open returns a driver on the database, migrated. Each driver stands for a
	// process of its own: it shares no memory with another one. stop ends that
	// process; it is called before tb ends, and once.
	Open func(tb testing.TB, name string) (d store.Driver[TTx], stop func())

	// Plain opens the database as an application does that knows nothing of the
	// driver. It is closed when tb ends.
	Plain func(tb testing.TB, name string) Plain[TTx]

	// Age returns statements that make every time that the driver has stored in
	// order to judge by it older by the given duration: leases, lifetimes,
	// receipts, holds. The time of a message is its own and stays. A negative
	// duration makes them younger.
	Age func(by time.Duration) []string
}

// Plain is the application's own access to the database. Exec, Count, Commit
// and Rollback are also what a handler does to the transaction that a driver
// has given it, so they must return the error of the database as it is.
type Plain[TTx any] interface {
	// Begin starts a transaction that is not the driver's.
	Begin(ctx context.Context) (TTx, error)
	// Exec runs one statement without parameters.
	Exec(ctx context.Context, tx TTx, statement string) error
	// Count returns the integer that the query selects.
	Count(ctx context.Context, tx TTx, query string) (int, error)
	// Commit and Rollback end the transaction by its handle.
	Commit(ctx context.Context, tx TTx) error
	Rollback(ctx context.Context, tx TTx) error
}

// Run checks every rule, each on a database of its own.
func Run[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	if h.Create == nil || h.Open == nil || h.Plain == nil || h.Age == nil {
		t.Fatal("storetest: the harness needs Create, Open, Plain and Age; none has a default")
	}
	for _, r := range rules[TTx]() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, h, usualPatience)
		})
	}
}

// rule is one case of the suite.
type rule[TTx any] struct {
	// name begins with the number of the rule.
	name string
	// says is what a driver that fails the case has broken.
	says string
	// check fails f if the rule is broken.
	check func(f *fixture[TTx])
}

// run checks the rule on a new database, and names it if it is broken.
func (r rule[TTx]) run(tb testing.TB, h Harness[TTx], patience time.Duration) {
	tb.Helper()
	defer func() {
		tb.Helper()
		if tb.Failed() {
			tb.Logf("broken rule %s: %s", r.name, r.says)
		}
	}()
	r.check(newFixture(tb, h, patience))
}

// rules returns the suite, in the order of the protocol.
func rules[TTx any]() []rule[TTx] {
	var all []rule[TTx]
	for _, part := range []func() []rule[TTx]{
		identityRules[TTx],
		executeRules[TTx],
		atomicityRules[TTx],
		handleRules[TTx],
		recordRules[TTx],
		resolveRules[TTx],
		expiryRules[TTx],
		runRules[TTx],
		phaseRules[TTx],
		outboxRules[TTx],
		slotRules[TTx],
		holdRules[TTx],
		inboxRules[TTx],
		modelRules[TTx],
	} {
		all = append(all, part()...)
	}
	return all
}
