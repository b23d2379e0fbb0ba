// SPDX-License-Identifier: Apache-2.0

// Package shop is the reference service of reprise: a small shop that takes
// orders, payments and coupons, and that can be asked for each of them any number
// of times. It is written the way a user of the library would write theirs.
//
// Read it in this order: operations.go says what each endpoint promises; order.go
// is a write in one transaction; coupon.go is one with a limited stock;
// payment.go calls another system; fulfilment.go receives the events; shop.go
// puts it together.
package shop

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/cmd/reprise/serve"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// Shop is one process of the shop. Several may share a database.
type Shop struct {
	config Config
	log    *slog.Logger

	database *Database
	dialect  *dialect
	db       *sql.DB // for reading; writing is the driver's
	driver   driver

	contract *contract.Contract
	ledger   *ledger.Ledger[*sql.Tx]
	server   *ledgerhttp.Server[*sql.Tx]
	payments *ledger.Staged[*sql.Tx]
	outbox   *outbox.Outbox[*sql.Tx]
	relay    *outbox.Relay
	inbox    *inbox.Inbox[*sql.Tx]

	tokens   *tokens
	provider *provider
	builtin  *psp.Provider // nil if the provider is somebody else's
	metrics  *metrics

	// listeners are those of the API, of the admin and of the builtin provider, in
	// the order in which they are announced and ended.
	listeners []*serve.Listener
	draining  atomic.Bool
}

// Open prepares a shop: it checks the configuration, opens and migrates the
// database and takes the addresses to listen on. Errors are of package exit.
func Open(ctx context.Context, c Config) (*Shop, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	s := &Shop{config: c, log: c.Logger}
	for _, step := range []func(context.Context) error{
		s.openTokens, s.openDatabase, s.openProvider, s.openLedger, s.openEvents, s.listen,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.Close()) //nolint:contextcheck // closing must not be cut short
		}
	}
	return s, nil
}

func (s *Shop) openTokens(context.Context) error {
	var err error
	s.tokens, err = newTokens(s.config.Tokens, *s.config.DevAuth)
	if err == nil && s.config.Tokens == "" && !*s.config.DevAuth {
		s.log.Warn("nobody can authenticate: there is no --tokens file and dev-auth is off")
	}
	return err
}

func (s *Shop) openDatabase(ctx context.Context) error {
	var err error
	if s.database, err = OpenDatabase(ctx, s.config.url, s.config.Driver); err != nil {
		return err
	}
	s.dialect, s.db, s.driver = s.config.url.dialect, s.database.sql, s.database.driver
	if err := s.database.Migrate(ctx); err != nil {
		return err
	}
	return s.database.prove(ctx)
}

// sql returns the text of a query, in which every parameter is a ?, for the
// database that this shop has.
func (s *Shop) sql(query string) string { return s.dialect.bind(query) }

func (s *Shop) openProvider(ctx context.Context) error {
	base := s.config.PSP
	if base == Builtin {
		var err error
		s.builtin, err = psp.Open(ctx, psp.Config{Path: s.config.pspPath, DeclineOver: psp.DefaultDeclineOver})
		if err != nil {
			return err
		}
		l, err := serve.Listen(ctx, "psp", "127.0.0.1:0", s.builtin.Handler(), s.log)
		if err != nil {
			return err
		}
		l.OnDrain(s.builtin.Release)
		s.listeners, base = append(s.listeners, l), l.URL()
	}
	s.provider = newProvider(strings.TrimRight(base, "/"), s.config.PSPTimeout, s.log)
	return nil
}

func (s *Shop) openLedger(context.Context) error {
	var err error
	s.contract, err = promises(s.config)
	if err != nil {
		return err
	}
	s.ledger, err = ledger.New(s.driver, &ledger.Config{
		// Retention, Tombstone and Wait are those of the contract.
		Lease: s.config.Lease, RecoverEvery: min(max(s.config.Lease/3, minRecoverEvery), maxRecoverEvery),
		// A payment has to have the time to hear of its provider.
		WorkTimeout: max(defaultWorkTimeout, 2*s.config.PSPTimeout),
		Logger:      s.log,
	})
	if err != nil {
		return err
	}
	s.payments, err = ledger.NewStaged(s.ledger, opPayOrder, s.pay)
	if err != nil {
		return err
	}
	s.server, err = ledgerhttp.NewServer(s.ledger, ledgerhttp.Config{
		Contract: s.contract, Callers: s.tokens.caller, Logger: s.log,
	})
	return err
}

const (
	// Events wait for as long after the process that delivered them died. Each
	// renewal is a commit, so it is not as short as it could be.
	minRelayLease = 100 * time.Millisecond
	maxRelayLease = 3 * time.Second
	// What slows one delivery to a consumer in this process down is the database,
	// which slows down all of them: passing over it gains nothing.
	deliveryTimeout    = 10 * time.Second
	retryBase          = 100 * time.Millisecond
	minRecoverEvery    = 100 * time.Millisecond
	maxRecoverEvery    = 10 * time.Second
	defaultWorkTimeout = 30 * time.Second
)

func (s *Shop) openEvents(ctx context.Context) error {
	migrations, err := migrate.Status(ctx, s.driver)
	if err != nil {
		return err
	}
	s.metrics = newMetrics(len(migrations))
	s.outbox, err = outbox.New(s.driver, &outbox.Config{Source: eventSource})
	if err != nil {
		return err
	}
	s.inbox, err = inbox.New(s.driver, fulfilment, nil)
	if err != nil {
		return err
	}
	lease := min(max(s.config.Lease, minRelayLease), maxRelayLease)
	s.relay, err = outbox.NewRelay(s.driver.Relay(), outbox.SinkFunc(s.deliver), &outbox.RelayConfig{
		Lease: lease, PollMax: min(lease, time.Second),
		Timeout: deliveryTimeout, Patience: deliveryTimeout, RetryBase: retryBase,
		Observe: s.metrics.delivered, Logger: s.log,
	})
	if err != nil {
		return err
	}
	if d, ok := s.driver.(*sqlite.Driver); ok {
		s.metrics.registry.MustRegister(sqliteStats{d})
	}
	return s.metrics.registry.Register(gauges{s.driver, s.relay})
}

func (s *Shop) listen(ctx context.Context) error {
	admin, err := serve.Listen(ctx, "admin", s.config.Admin, s.admin(), s.log)
	if err != nil {
		return err
	}
	s.listeners = append([]*serve.Listener{admin}, s.listeners...)
	api, err := serve.Listen(ctx, "api", s.config.Listen, s.api(), s.log)
	if err != nil {
		return err
	}
	s.listeners = append([]*serve.Listener{api}, s.listeners...)
	return nil
}

// URLs returns the base URLs of the API and of the admin listener.
func (s *Shop) URLs() (api, admin string) { return s.listeners[0].URL(), s.listeners[1].URL() }

// ReloadTokens reads the file of tokens again. If that fails, those that were
// known before stay in force.
func (s *Shop) ReloadTokens() error { return s.tokens.reload() }

// Run announces the listeners and works until ctx ends. Then it is not ready any
// more, takes no further request, ends those in flight, and returns nil if none
// of them had to be cut off.
//
// The order of the end follows from who needs whom: requests need the provider,
// and the operator wants to see until the last moment.
func (s *Shop) Run(ctx context.Context) error {
	for _, l := range s.listeners {
		if err := l.Announce(s.config.Out); err != nil {
			return err
		}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(ctx, func() { s.draining.Store(true) })()

	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var workers, servers sync.WaitGroup
	for _, work := range []func(context.Context) error{s.relay.Run, s.ledger.RunRecovery, s.ledger.RunPurge} {
		workers.Go(func() {
			if err := work(background); err != nil {
				fail(err)
			}
		})
	}
	others, stopOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOthers()
	for _, l := range s.listeners[1:] {
		servers.Go(func() {
			if err := l.Run(others, s.config.Drain); err != nil {
				fail(err)
			}
		})
	}

	err := s.listeners[0].Run(ctx, s.config.Drain)
	stopBackground()
	workers.Wait()
	stopOthers()
	servers.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// Close gives back what Open took. Run must have returned.
func (s *Shop) Close() error {
	var errs []error
	for _, l := range s.listeners {
		_ = l.Close() // Run has closed those that it ran.
	}
	if s.provider != nil {
		s.provider.close()
	}
	if s.builtin != nil {
		errs = append(errs, s.builtin.Close())
	}
	if s.database != nil {
		errs = append(errs, s.database.Close())
	}
	return errors.Join(errs...)
}

// newID returns a new name for a resource, such as red_k3x….
func newID(kind string) string { return kind + "_" + strings.ToLower(rand.Text()) }

// derivedID returns the name of a resource that an intent makes. It is the same
// whenever the intent is executed, also by a shop that has lost its memory of it:
// what other systems know under that name is recognised, and not made again.
func derivedID(kind string, derived reprise.Key) string {
	return kind + "_" + strings.ReplaceAll(string(derived), "-", "")
}

// moment is the time of a business fact, to the precision that it is stored with.
// Its text always has as many digits, so that texts are in the order of their times.
type moment struct{ time.Time }

func now() moment { return moment{time.Now().UTC().Truncate(time.Millisecond)} }

// MarshalJSON implements json.Marshaler.
func (m moment) MarshalJSON() ([]byte, error) {
	return m.AppendFormat(nil, `"2006-01-02T15:04:05.000Z07:00"`), nil
}
