// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/wire"
)

// DefaultMaxRequestBody is 1 MiB.
const DefaultMaxRequestBody = 1 << 20

// DefaultMaxResponse is 16 MiB.
const DefaultMaxResponse = 16 << 20

// Config configures a Server.
type Config struct {
	// Contract declares the operations that are served. Required. Its Retention,
	// Tombstone and Wait, which contract.New fills in, always win over those of
	// ledger.Config.
	Contract *contract.Contract

	// Callers establishes who asks, and whether they may, on every request
	// before anything else, replays included (rule K4). Required; a service with
	// a single caller returns reprise.Unscoped. An error answers 401, unless it
	// is an *reprise.Error, such as that of Refuse(403, ...), which answers for
	// itself. An empty caller is an error too. It must not read the body, which
	// has not arrived yet.
	Callers func(*http.Request) (reprise.Caller, error)

	// Challenge is the WWW-Authenticate field of a 401 answer (RFC 9110 section
	// 11.6.1). Defaults to "Bearer".
	Challenge string

	// MaxRequestBody is the largest request body in bytes; a larger one is
	// answered 413. Defaults to DefaultMaxRequestBody.
	MaxRequestBody int64

	// MaxResponse is the largest response body, in bytes, that a handler under
	// Middleware may write: it is held in memory until COMMIT. A larger one is
	// rolled back and answered 500. Of what is within it, the ledger keeps results
	// up to its own MaxBody. Defaults to DefaultMaxResponse.
	MaxResponse int64

	// FingerprintSecret keys the fingerprints of requests (HMAC), so that stored
	// fingerprints do not help to guess bodies such as a PIN. It must not change
	// while keys are remembered, and must be the same in every process: with
	// another secret every repeat looks like another request. Defaults to none.
	FingerprintSecret []byte

	// Logger receives what callers are not told. Defaults to slog.Default().
	Logger *slog.Logger
}

// Server holds what the handlers of one service share. It is safe for
// concurrent use.
type Server[TTx any] struct {
	ledger *ledger.Ledger[TTx]
	config Config
}

// NewServer returns a Server over l. It fails if c is not complete.
func NewServer[TTx any](l *ledger.Ledger[TTx], c Config) (*Server[TTx], error) {
	switch {
	case l == nil:
		return nil, errors.New("ledgerhttp: the ledger is nil; make one with ledger.New")
	case c.Contract == nil:
		return nil, errors.New("ledgerhttp: Config.Contract is nil; declare the operations with contract.New")
	case c.Callers == nil:
		return nil, errors.New("ledgerhttp: Config.Callers is nil; " +
			"say who calls, or return reprise.Unscoped if there is only one caller")
	case c.MaxRequestBody < 0:
		return nil, fmt.Errorf("ledgerhttp: Config.MaxRequestBody is %d; it can't be negative", c.MaxRequestBody)
	case c.MaxResponse < 0:
		return nil, fmt.Errorf("ledgerhttp: Config.MaxResponse is %d; it can't be negative", c.MaxResponse)
	}
	if c.MaxResponse == 0 {
		c.MaxResponse = DefaultMaxResponse
	}
	for _, op := range c.Contract.Operations() {
		if op.Mode == contract.ModeNone {
			continue
		}
		if err := l.Check(ledger.Options{Retention: op.Retention, Tombstone: op.Tombstone, Wait: op.Wait}); err != nil {
			return nil, fmt.Errorf("ledgerhttp: operation %q of the contract: %w", op.Name, err)
		}
	}
	if c.MaxRequestBody == 0 {
		c.MaxRequestBody = DefaultMaxRequestBody
	}
	if c.Challenge == "" {
		c.Challenge = "Bearer"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.FingerprintSecret = slices.Clone(c.FingerprintSecret)
	return &Server[TTx]{ledger: l, config: c}, nil
}

// declared returns the operation called name, which must be of one of the modes.
// It panics otherwise, as http.ServeMux.Handle does for a bad pattern: a handler
// for an operation that nobody promised is a mistake in the program.
func (s *Server[TTx]) declared(form string, name reprise.Operation, modes ...contract.Mode) contract.Operation {
	op, ok := s.config.Contract.Operation(name)
	if !ok {
		panic(fmt.Sprintf("ledgerhttp: %s: the contract has no operation %q; declare it", form, name))
	}
	if !slices.Contains(modes, op.Mode) {
		panic(fmt.Sprintf("ledgerhttp: %s: operation %q has mode %q in the contract; it must be one of %q",
			form, name, op.Mode, modes))
	}
	return op
}

// fail answers with the problem of err, and logs what the caller is not told.
func (s *Server[TTx]) fail(w http.ResponseWriter, r *http.Request, op contract.Operation, err error) {
	p := wire.ProblemOf(err)
	if p.Status >= http.StatusInternalServerError {
		level := slog.LevelError
		if r.Context().Err() != nil {
			level = slog.LevelInfo // Nobody waits for this answer any more.
		}
		s.config.Logger.LogAttrs(r.Context(), level, "request failed",
			slog.String("operation", string(op.Name)),
			slog.Int("status", p.Status),
			slog.String("code", string(p.Code)),
			slog.Any("error", err))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", s.config.Challenge)
	}
	p.Write(w)
}

// txKey finds the transaction in the context of a handler under Middleware.
type txKey struct{}

// Tx returns the transaction of the request, inside of a handler under
// Middleware. ok is false elsewhere, and when TTx is not the type of the
// server's transactions. The handler must not end it, also not by the usual
// "defer tx.Rollback()": what it answers decides between COMMIT and ROLLBACK.
func Tx[TTx any](ctx context.Context) (tx TTx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(TTx)
	return tx, ok
}
