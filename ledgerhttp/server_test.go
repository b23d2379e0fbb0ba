// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
)

func TestNewServer(t *testing.T) {
	t.Parallel()
	s := setup(t)
	c, err := contract.New(shopOperations...)
	check(t, err)
	callers := func(*http.Request) (reprise.Caller, error) { return reprise.Unscoped, nil }

	// The ledger's own tombstone would do; that of the contract's operations does not.
	patient, err := ledger.New(s.driver, &ledger.Config{Tombstone: 90 * 24 * time.Hour, ClientDeadline: 60 * 24 * time.Hour})
	check(t, err)

	for _, bad := range []struct {
		name   string
		ledger *ledger.Ledger[*sql.Tx]
		config ledgerhttp.Config
		want   string
	}{
		{"no ledger", nil, ledgerhttp.Config{Contract: c, Callers: callers}, "ledger.New"},
		{"no contract", s.ledger, ledgerhttp.Config{Callers: callers}, "contract.New"},
		{"SEC-04 nobody who says who calls", s.ledger, ledgerhttp.Config{Contract: c}, "reprise.Unscoped"},
		{"a negative limit of responses", s.ledger, ledgerhttp.Config{Contract: c, Callers: callers, MaxResponse: -1}, "negative"},
		{"L9 keys that are forgotten before clients stop", patient, ledgerhttp.Config{Contract: c, Callers: callers}, "set Tombstone to at least"},
		{"a negative limit", s.ledger, ledgerhttp.Config{Contract: c, Callers: callers, MaxRequestBody: -1}, "negative"},
	} {
		t.Run("refuses "+bad.name, func(t *testing.T) {
			t.Parallel()
			_, err := ledgerhttp.NewServer(bad.ledger, bad.config)
			if err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("got %v, want an error with %q", err, bad.want)
			}
		})
	}
	t.Run("takes the rest as default", func(t *testing.T) {
		t.Parallel()
		if _, err := ledgerhttp.NewServer(s.ledger, ledgerhttp.Config{Contract: c, Callers: callers}); err != nil {
			t.Error(err)
		}
	})
}

func TestUndeclaredOperation(t *testing.T) {
	t.Parallel()
	s := setup(t)
	work := func(context.Context, *sql.Tx, order) (reprise.Result, error) { return reprise.Result{}, nil }
	read := func(context.Context, order) (reprise.Result, error) { return reprise.Result{}, nil }
	ghost, err := ledger.NewStaged(s.ledger, "create-order", func(context.Context, *ledger.Run[*sql.Tx]) error { return nil })
	check(t, err)
	conditional := func() *ledgerhttp.Server[*sql.Tx] {
		c, err := contract.New(
			contract.Operation{
				Name: "charge", Method: "POST", Path: "/charge", Safety: contract.Keyed, Key: contract.KeyRequired,
				Precondition: contract.IfMatch, Mode: contract.Staged,
				Effects: []contract.Effect{{Name: "charge", By: contract.ByDownstreamKey}},
			},
			contract.Operation{
				Name: "change", Method: "PUT", Path: "/change", Safety: contract.Idempotent, Precondition: contract.IfMatch,
			},
			contract.Operation{Name: "replace", Method: "PUT", Path: "/replace", Safety: contract.Idempotent},
			contract.Operation{Name: "read", Method: "GET", Path: "/read", Safety: contract.Safe},
		)
		check(t, err)
		server, err := ledgerhttp.NewServer(s.ledger, ledgerhttp.Config{
			Contract: c, Callers: func(*http.Request) (reprise.Caller, error) { return reprise.Unscoped, nil },
		})
		check(t, err)
		return server
	}()
	run, err := ledger.NewStaged(s.ledger, "charge", func(context.Context, *ledger.Run[*sql.Tx]) error { return nil })
	check(t, err)
	t.Run("Safe takes what is safe or idempotent", func(t *testing.T) {
		t.Parallel()
		ledgerhttp.Safe(conditional, "read", decodeOrder, read)
		ledgerhttp.Safe(conditional, "replace", decodeOrder, read)
	})
	for name, mount := range map[string]func(){
		"Atomic of nothing":         func() { ledgerhttp.Atomic(s.server, "nothing", decodeOrder, work) },
		"Atomic of a staged one":    func() { ledgerhttp.Atomic(s.server, "pay", decodeOrder, work) },
		"Middleware of nothing":     func() { s.server.Middleware("nothing") },
		"Middleware of a staged":    func() { s.server.Middleware("pay") },
		"Safe of an unsafe one":     func() { ledgerhttp.Safe(s.server, "ping", decodeOrder, read) },
		"Safe of a conditional one": func() { ledgerhttp.Safe(conditional, "change", decodeOrder, read) },
		"Staged of a conditional":   func() { ledgerhttp.Staged(conditional, decodeOrder, run, nil) },
		"Safe of an atomic one":     func() { ledgerhttp.Safe(s.server, "create-order", decodeOrder, read) },
		"Staged of an atomic one":   func() { ledgerhttp.Staged(s.server, decodeOrder, ghost, nil) },
		"ContractHandler of no one": func() { ledgerhttp.ContractHandler(nil) },
	} {
		t.Run(name+" panics", func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			mount()
		})
	}
}
