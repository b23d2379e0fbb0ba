// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
	"github.com/reprise-go/reprise/wire"
)

// shop is a small service on a real SQLite file and a real socket. Its effects
// are rows of the table orders, one for each execution that was committed.
type shop struct {
	t      testing.TB
	db     *sql.DB
	driver store.Driver[*sql.Tx]
	ledger *ledger.Ledger[*sql.Tx]
	server *ledgerhttp.Server[*sql.Tx]
	http   *httptest.Server
	log    *logBuffer

	// during is called by the work of create-order, inside its transaction and
	// after its row is written. May be nil.
	during atomic.Pointer[func(context.Context, *sql.Tx) error]
	// instead answers everything in place of the routes. May be nil.
	instead atomic.Pointer[http.Handler]
	// arrived counts requests that came as far as authentication.
	arrived atomic.Int64
	// runs counts executions of work, kept or not.
	runs atomic.Int64
	// revoked callers are refused with 403, whatever they ask.
	revoked sync.Map
	// wrapped is what the operation under Middleware does.
	wrapped atomic.Pointer[http.HandlerFunc]
	// provider answers the call of the staged operation.
	provider atomic.Pointer[func(reprise.Key, []byte) ([]byte, error)]
}

// options change what setup makes.
type options struct {
	ledger ledger.Config
	server ledgerhttp.Config
	driver func(store.Driver[*sql.Tx]) store.Driver[*sql.Tx]
	wait   time.Duration
	http   func(*http.Server)
	http2  bool
}

var shopOperations = []contract.Operation{
	{Name: "create-order", Method: "POST", Path: "/orders", Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic},
	{Name: "create-note", Method: "POST", Path: "/notes", Safety: contract.Keyed, Key: contract.KeyOptional, Mode: contract.Atomic},
	{Name: "ping", Method: "POST", Path: "/pings", Safety: contract.Unsafe},
	{Name: "read-order", Method: "GET", Path: "/orders/{id}", Safety: contract.Safe},
	{
		Name: "change-order", Method: "PUT", Path: "/orders/{id}", Safety: contract.Idempotent, Key: contract.KeyOptional,
		Precondition: contract.IfMatch, Mode: contract.Atomic,
	},
	{
		Name: "create-offer", Method: "POST", Path: "/offers", Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
		Retention: time.Hour, FingerprintHeaders: []string{"Api-Version"}, Volatile: []string{"sent_at"},
	},
	{Name: "wrapped", Method: "POST", Path: "/wrapped", Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic},
	{Name: "wrapped-note", Method: "POST", Path: "/wrapped-notes", Safety: contract.Keyed, Key: contract.KeyOptional, Mode: contract.Atomic},
	{
		Name: "pay", Method: "POST", Path: "/orders/{id}/payments", Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Staged,
		Effects: []contract.Effect{{Name: "charge", By: contract.ByDownstreamKey}},
	},
}

func setup(t testing.TB, change ...func(*options)) *shop {
	t.Helper()
	s := newShop(t)
	o := s.options(change)
	s.driver = s.openStore(o)
	s.serve(o)
	return s
}

// sibling is another process of the same service, as far as the ledger can tell:
// it shares the store and no memory.
func (s *shop) sibling(change ...func(*options)) *shop {
	s.t.Helper()
	other := newShop(s.t)
	other.db, other.driver = s.db, s.driver
	other.serve(other.options(change))
	return other
}

func newShop(t testing.TB) *shop { return &shop{t: t, log: &logBuffer{}} }

func (s *shop) options(change []func(*options)) *options {
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	o := &options{wait: 5 * time.Second}
	o.ledger.Logger = logger
	o.server.Logger = logger
	o.server.Callers = s.authenticate
	for _, f := range change {
		f(o)
	}
	return o
}

func (s *shop) serve(o *options) {
	s.t.Helper()
	l, err := ledger.New(s.driver, &o.ledger)
	check(s.t, err)
	s.ledger = l
	s.openHTTP(o)
}

func (s *shop) openStore(o *options) store.Driver[*sql.Tx] {
	t := s.t
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db")+"?_pragma=busy_timeout(5000)")
	check(t, err)
	t.Cleanup(func() { db.Close() })
	d, err := sqlite.New(t.Context(), db, nil)
	check(t, err)
	t.Cleanup(func() { d.Close() })
	check(t, migrate.Up(t.Context(), d))
	_, err = db.ExecContext(t.Context(), `CREATE TABLE orders (
		id INTEGER PRIMARY KEY, caller TEXT NOT NULL, ref TEXT NOT NULL, amount INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 1)`)
	check(t, err)
	s.db = db

	if o.driver != nil {
		return o.driver(d)
	}
	return d
}

func (s *shop) openHTTP(o *options) {
	t := s.t
	t.Helper()
	operations := slices.Clone(shopOperations)
	for i := range operations {
		if operations[i].Key == contract.KeyRequired || operations[i].Key == contract.KeyOptional {
			operations[i].Wait = o.wait
		}
	}
	c, err := contract.New(operations...)
	check(t, err)
	o.server.Contract = c
	s.server, err = ledgerhttp.NewServer(s.ledger, o.server)
	check(t, err)
	pay, err := ledger.NewStaged(s.ledger, "pay", s.pay)
	check(t, err)

	mux := http.NewServeMux()
	handle := func(name reprise.Operation, h http.Handler) {
		op, ok := c.Operation(name)
		if !ok {
			t.Fatalf("no operation %q", name)
		}
		mux.Handle(op.Pattern(), h)
	}
	wrapped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.wrapped.Load())(w, r) })
	handle("create-order", ledgerhttp.Atomic(s.server, "create-order", decodeOrder, s.createOrder))
	handle("create-note", ledgerhttp.Atomic(s.server, "create-note", decodeOrder, s.createOrder))
	handle("create-offer", ledgerhttp.Atomic(s.server, "create-offer", decodeOrder, s.createOrder))
	handle("ping", ledgerhttp.Atomic(s.server, "ping", decodeOrder, s.createOrder))
	handle("read-order", ledgerhttp.Safe(s.server, "read-order", decodeID, s.readOrder))
	handle("change-order", ledgerhttp.Atomic(s.server, "change-order", decodeChange, s.changeOrder))
	handle("wrapped", s.server.Middleware("wrapped")(wrapped))
	handle("wrapped-note", s.server.Middleware("wrapped-note")(wrapped))
	handle("pay", ledgerhttp.Staged(s.server, decodeOrder, pay, func(in order) ([]byte, error) { return []byte(in.Ref), nil }))
	mux.Handle(contract.Path, ledgerhttp.ContractHandler(c))
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := s.instead.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(s.log, nil), slog.LevelError)
	if o.http != nil {
		o.http(s.http.Config)
	}
	if s.http.EnableHTTP2 = o.http2; o.http2 {
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	t.Cleanup(s.http.Close)
}

// authenticate knows callers by "Authorization: Bearer dev-NAME".
func (s *shop) authenticate(r *http.Request) (reprise.Caller, error) {
	s.arrived.Add(1)
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer dev-")
	if !ok {
		return "", errors.New("no credentials: secret-reason")
	}
	if _, gone := s.revoked.Load(name); gone {
		return "", ledgerhttp.Refuse(http.StatusForbidden, "forbidden", "you may not do this any more")
	}
	return reprise.Caller(name), nil
}

type order struct {
	caller reprise.Caller
	Ref    string             `json:"ref"`
	Amount ledgerhttp.Integer `json:"amount"`
	SentAt string             `json:"sent_at"`
}

func decodeOrder(r *ledgerhttp.Request) (order, error) {
	in, err := ledgerhttp.DecodeJSON[order](r)
	if err == nil && in.Amount < 0 {
		err = ledgerhttp.Invalid("the amount must not be negative")
	}
	in.caller = r.Caller
	return in, err
}

func (s *shop) createOrder(ctx context.Context, tx *sql.Tx, in order) (reprise.Result, error) {
	s.runs.Add(1)
	id, err := insertOrder(ctx, tx, in)
	if err != nil {
		return reprise.Result{}, err
	}
	if f := s.during.Load(); f != nil {
		if err := (*f)(ctx, tx); err != nil {
			return reprise.Result{}, err
		}
	}
	res, err := ledgerhttp.JSON(http.StatusCreated, map[string]any{"id": id, "ref": in.Ref, "amount": int64(in.Amount)})
	res.Reference = fmt.Sprintf("/orders/%d", id)
	res.Header["Location"] = []string{res.Reference}
	res.Header["Etag"] = []string{wire.ETag("1")}
	return res, err
}

func insertOrder(ctx context.Context, tx *sql.Tx, in order) (int64, error) {
	r, err := tx.ExecContext(ctx, `INSERT INTO orders (caller, ref, amount) VALUES (?, ?, ?)`, string(in.caller), in.Ref, int64(in.Amount))
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

type change struct {
	order
	id string
	r  *http.Request
}

func decodeChange(r *ledgerhttp.Request) (change, error) {
	in, err := decodeOrder(r)
	return change{order: in, id: r.PathValue("id"), r: r.Request}, err
}

func (s *shop) changeOrder(ctx context.Context, tx *sql.Tx, in change) (reprise.Result, error) {
	s.runs.Add(1)
	var version int
	err := tx.QueryRowContext(ctx, `SELECT version FROM orders WHERE id = ? AND caller = ?`, in.id, string(in.caller)).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return reprise.Result{}, ledgerhttp.Refuse(http.StatusNotFound, "not-found", "there is no such order")
	}
	if err != nil {
		return reprise.Result{}, err
	}
	if err := ledgerhttp.CheckIfMatch(in.r, wire.ETag(fmt.Sprint(version))); err != nil {
		return reprise.Result{}, err
	}
	version++
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET amount = ?, version = ? WHERE id = ?`, int64(in.Amount), version, in.id); err != nil {
		return reprise.Result{}, err
	}
	res, err := ledgerhttp.JSON(http.StatusOK, map[string]any{"id": in.id, "version": version})
	res.Header["Etag"] = []string{wire.ETag(fmt.Sprint(version))}
	return res, err
}

func decodeID(r *ledgerhttp.Request) (change, error) {
	return change{order: order{caller: r.Caller}, id: r.PathValue("id")}, nil
}

func (s *shop) readOrder(ctx context.Context, in change) (reprise.Result, error) {
	var amount, version int
	err := s.db.QueryRowContext(ctx, `SELECT amount, version FROM orders WHERE id = ? AND caller = ?`, in.id, string(in.caller)).
		Scan(&amount, &version)
	if errors.Is(err, sql.ErrNoRows) {
		return reprise.Result{}, ledgerhttp.Refuse(http.StatusNotFound, "not-found", "there is no such order")
	}
	if err != nil {
		return reprise.Result{}, err
	}
	res, err := ledgerhttp.JSON(http.StatusOK, map[string]any{"amount": amount})
	res.Header["Etag"] = []string{wire.ETag(fmt.Sprint(version))}
	return res, err
}

// pay charges by way of the provider and writes its row with the answer.
func (s *shop) pay(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
	s.runs.Add(1)
	ref := string(run.Input())
	if ref == "refused" {
		return ledgerhttp.Refuse(http.StatusConflict, "payment-in-progress", "another payment of this order is in progress")
	}
	charge, err := run.Call(ctx, "charge", []byte(ref), func(_ context.Context, key reprise.Key, request []byte) ([]byte, error) {
		return (*s.provider.Load())(key, request)
	})
	if err != nil && reprise.OutcomeOf(err) != reprise.Rejected {
		return err
	}
	declined := err != nil
	_, err = run.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		if declined {
			return ledgerhttp.ProblemResult(http.StatusPaymentRequired, "declined", "the card was declined"), nil
		}
		if _, err := insertOrder(ctx, tx, order{caller: run.Intent().Caller, Ref: ref}); err != nil {
			return reprise.Result{}, err
		}
		return ledgerhttp.JSON(http.StatusCreated, map[string]string{"charge": string(charge)})
	})
	return err
}

// rows counts the orders with this reference: the effects.
func (s *shop) rows(ref string) int {
	s.t.Helper()
	var n int
	check(s.t, s.db.QueryRowContext(context.Background(), `SELECT count(*) FROM orders WHERE ref = ?`, ref).Scan(&n))
	return n
}

func (s *shop) wantRows(ref string, want int) {
	s.t.Helper()
	if got := s.rows(ref); got != want {
		s.t.Errorf("%d rows with ref %q, want %d", got, ref, want)
	}
}

// whenWorking sets what create-order does inside its transaction.
func (s *shop) whenWorking(f func(context.Context, *sql.Tx) error) { s.during.Store(&f) }

// replace makes h answer everything.
func (s *shop) replace(h http.Handler) { s.instead.Store(&h) }

// awaitArrivals waits until n requests have come as far as authentication.
func (s *shop) awaitArrivals(n int64) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d requests arrived", n), func() bool { return s.arrived.Load() >= n })
}

func (s *shop) wrap(f http.HandlerFunc) { s.wrapped.Store(&f) }

func (s *shop) provide(f func(reprise.Key, []byte) ([]byte, error)) { s.provider.Store(&f) }
