// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

func TestStats(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := openShop(t, &ledger.Config{
		Wait:   20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	st, err := ledger.NewStaged(s.ledger, "pay", func(context.Context, *ledger.Run[*sql.Tx]) error { return errors.New("stopped") })
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	do := func(ctx context.Context, in reprise.Intent, work ledger.Work[*sql.Tx]) {
		_, _ = s.ledger.Do(ctx, in, ledger.Options{}, work)
	}
	failing := func(err error) ledger.Work[*sql.Tx] {
		return func(context.Context, *sql.Tx) (reprise.Result, error) { return reprise.Result{}, err }
	}
	const secret = "the-key-of-alice"
	in := intentOf(secret, 1)
	do(t.Context(), in, failing(errors.New("broken")))
	do(t.Context(), in, failing(&reprise.Error{Code: "order-paid"}))
	do(t.Context(), in, failing(ledger.Refuse(reprise.Result{Status: 404})))
	do(gone, in, s.ordering("tea"))
	do(t.Context(), in, s.ordering("tea"))
	do(t.Context(), in, s.ordering("tea"))
	do(t.Context(), intentOf(secret, 2), s.ordering("tea"))
	do(t.Context(), intentOf(mintedAt(time.Now().Add(-31*24*time.Hour)), 1), s.ordering("tea"))
	do(t.Context(), intentOf(mintedAt(time.Now().Add(time.Hour)), 1), s.ordering("tea"))
	_, _ = st.Do(t.Context(), payment(secret, 1), ledger.Options{}, nil)
	do(t.Context(), payment(secret, 1), s.ordering("tea")) // The same operation in the atomic mode: its run holds the key.
	func() {
		defer func() { _ = recover() }()
		do(t.Context(), intentOf("p", 1), func(context.Context, *sql.Tx) (reprise.Result, error) { panic("boom") })
	}()

	want := ledger.Stats{Executed: 1, Replayed: 1, Refused: 4, Reused: 1, InProgress: 1, Expired: 1, Unknown: 1, Failed: 2}
	if got := s.ledger.Stats(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, event := range []string{"executed", "replayed", "refused", "caller gone", "key reused", "in progress", "key expired", "outcome unknown", "failed", "panicked"} {
		if !strings.Contains(log.String(), "ledger: "+event) {
			t.Errorf("the log says nothing of %q", event)
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Error("a key, which opens a stored answer, is in the log")
	}
	s.effects(1)
}

func TestStoredHeaders(t *testing.T) {
	t.Parallel()
	names := ledger.StoredHeaders()
	if !slices.Contains(names, "Location") || slices.Contains(names, "Set-Cookie") {
		t.Errorf("got %v", names)
	}
	names[0] = "Set-Cookie"
	if slices.Contains(ledger.StoredHeaders(), "Set-Cookie") {
		t.Error("a caller changed the list")
	}
}
