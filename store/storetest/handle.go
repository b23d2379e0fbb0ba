// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/store"
)

func handleRules[TTx any]() []rule[TTx] {
	all := []rule[TTx]{{
		"L10_retained_handle_is_dead",
		"A handle that a handler keeps is refused after the transaction has ended, however it ended, and writes nothing.",
		retainedHandle[TTx],
	}}
	for _, m := range modes[TTx]() {
		all = append(all, rule[TTx]{
			"L10_" + m.name + "_refuses_commit_through_the_handle",
			"A handler that commits its transaction by itself is refused with ErrTxMisuse, and nothing is kept.",
			func(f *fixture[TTx]) {
				f.misused(m, "handle", func(ctx context.Context, tx TTx) error { return f.plain.Commit(ctx, tx) })
			},
		}, rule[TTx]{
			"L10_" + m.name + "_refuses_rollback_through_the_handle",
			"A handler that rolls its transaction back by itself is refused with ErrTxMisuse: success is never reported for it.",
			func(f *fixture[TTx]) {
				f.misused(m, "handle", func(ctx context.Context, tx TTx) error { return f.plain.Rollback(ctx, tx) })
			},
		}, rule[TTx]{
			"L10_" + m.name + "_refuses_commit_and_rollback_in_sql_text",
			"COMMIT and ROLLBACK are refused in SQL text too, however they are written, and nothing is kept.",
			func(f *fixture[TTx]) { misusedText(f, m) },
		}, rule[TTx]{
			"L10_" + m.name + "_is_poisoned_by_a_failed_statement",
			"After a statement has failed every further one is refused, and nothing is kept even if the handler hides the error.",
			func(f *fixture[TTx]) { poisoned(f, m) },
		})
	}
	return all
}

// endings are ways to end a transaction in SQL text. Those that a dialect does
// not know fail as statements, which ends in the same: nothing is kept.
var endings = []string{
	"COMMIT",
	"commit;",
	"\n\t Commit ",
	"-- a comment\nCOMMIT",
	"/* a comment */ COMMIT",
	"COMMIT WORK",
	"COMMIT TRANSACTION",
	"END",
	"END TRANSACTION",
	"ROLLBACK",
	"/* a */ /* b */ rollback",
	"ABORT",
	"; COMMIT",
	"INSERT INTO storetest_effects (name) VALUES ('ghost'); COMMIT",
	"INSERT INTO storetest_effects (name) VALUES ('ghost'); ROLLBACK",
	"SELECT 1; END; SELECT 2",
	"COMMIT; BEGIN",
	"ROLLBACK; BEGIN",
}

func misusedText[TTx any](f *fixture[TTx], m mode[TTx]) {
	for n, text := range endings {
		at := m.start(f, fmt.Sprintf("text-%d", n))
		var refused error
		err := at.run(f.ctx, func(ctx context.Context, tx TTx) error {
			if err := f.everything(ctx, tx, "ghost"); err != nil {
				return err
			}
			refused = f.plain.Exec(ctx, tx, text)
			return nil
		})
		if refused == nil {
			f.Errorf("%q was not refused", text)
		}
		if err == nil {
			f.Errorf("a handler that executed %q was reported as committed", text)
		}
		f.wantNothingOf("ghost", at)
		if f.Failed() {
			return
		}
	}
	f.wantOnlyReal()
}

// misused runs a handler that ends its transaction with end and says nothing.
func (f *fixture[TTx]) misused(m mode[TTx], key string, end func(ctx context.Context, tx TTx) error) {
	f.Helper()
	at := m.start(f, key)
	err := at.run(f.ctx, func(ctx context.Context, tx TTx) error {
		if err := f.everything(ctx, tx, "ghost"); err != nil {
			return err
		}
		// The handle may refuse at once or at the end of the handler.
		_ = end(ctx, tx)
		return nil
	})
	if !errors.Is(err, store.ErrTxMisuse) {
		f.Errorf("the misuse was answered with %v, want ErrTxMisuse", err)
	}
	f.wantNothingOf("ghost", at)

	again := m.start(f, key+"-after")
	late := error(nil)
	err = again.run(f.ctx, func(ctx context.Context, tx TTx) error {
		_ = end(ctx, tx)
		late = f.effect(ctx, tx, "ghost")
		return late
	})
	if late == nil || err == nil {
		f.Errorf("a statement after the misuse: error %v, and the attempt %v; want both refused", late, err)
	}
	f.wantNothingOf("ghost", again)
	f.wantOnlyReal()
}

// wantOnlyReal commits one message and fails if any other is delivered.
func (f *fixture[TTx]) wantOnlyReal() {
	f.Helper()
	err := f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error { return f.everything(ctx, tx, "real") })
	if err != nil {
		f.Fatalf("a good transaction after a bad one: %v", err)
	}
	f.relay(f.d, "relay").wantDelivered("real")
}

// badStatements fail. The last one also ends the transaction by itself where
// the dialect knows it.
var badStatements = []string{
	"INSERT INTO storetest_no_such_table (name) VALUES ('x')",
	"INSERT INTO storetest_unique (name) VALUES ('taken')",
	"INSERT OR ROLLBACK INTO storetest_unique (name) VALUES ('taken')",
}

func poisoned[TTx any](f *fixture[TTx], m mode[TTx]) {
	for n, bad := range badStatements {
		hidden := m.start(f, fmt.Sprintf("hidden-%d", n))
		err := hidden.run(f.ctx, func(ctx context.Context, tx TTx) error {
			if err := f.everything(ctx, tx, "ghost"); err != nil {
				return err
			}
			if err := f.plain.Exec(ctx, tx, bad); err == nil {
				f.Errorf("%s: did not fail", bad)
			}
			return nil
		})
		if err == nil {
			f.Errorf("a handler that hid the failure of %s was reported as committed", bad)
		}
		f.wantNothingOf("ghost", hidden)
	}
	further := m.start(f, "further")
	err := further.run(f.ctx, func(ctx context.Context, tx TTx) error {
		if err := f.everything(ctx, tx, "ghost"); err != nil {
			return err
		}
		if _, err := f.plain.Count(ctx, tx, "SELECT n FROM storetest_no_such_table"); err == nil {
			f.Errorf("the bad query did not fail")
		}
		if err := f.effect(ctx, tx, "ghost"); err == nil {
			f.Errorf("a statement after a failed one was not refused")
		}
		if _, err := f.plain.Count(ctx, tx, "SELECT n FROM storetest_counter"); err == nil {
			f.Errorf("a query after a failed statement was not refused")
		}
		return nil
	})
	if !errors.Is(err, store.ErrTxMisuse) {
		f.Errorf("using a failed transaction was answered with %v, want ErrTxMisuse", err)
	}
	f.wantNothingOf("ghost", further)
	f.wantOnlyReal()
}

func retainedHandle[TTx any](f *fixture[TTx]) {
	for _, m := range modes[TTx]() {
		for _, want := range []error{nil, errHandler} {
			at := m.start(f, fmt.Sprintf("retained-%v", want == nil))
			var kept TTx
			err := at.run(f.ctx, func(_ context.Context, tx TTx) error {
				kept = tx
				return want
			})
			if !errors.Is(err, want) {
				f.Fatalf("%s: %v, want %v", m.name, err, want)
			}
			if err := f.effect(f.ctx, kept, "ghost"); err == nil {
				f.Errorf("%s: a handle kept after the end still takes statements", m.name)
			}
			if err := f.d.Enqueue(f.ctx, kept, message("ghost", "subject")); err == nil {
				f.Errorf("%s: a handle kept after the end still takes messages", m.name)
			}
			if _, _, err := f.d.Accept(f.ctx, kept, receipt("ghost")); err == nil {
				f.Errorf("%s: a handle kept after the end still takes receipts", m.name)
			}
			if err := f.plain.Commit(f.ctx, kept); err == nil {
				f.Errorf("%s: a handle kept after the end still commits", m.name)
			}
		}
	}
	// Whatever shares a connection with the dead handles commits now.
	f.wantOnlyReal()
	f.wantEffects("ghost", 0)
	f.wantFresh(f.d, receipt("ghost"), true)
}
