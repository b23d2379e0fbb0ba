// SPDX-License-Identifier: Apache-2.0

package powerloss_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// shop is a service on store/sqlite with both modes of the ledger: keyed orders
// with an event each, and payments that reserve, call a provider and finish.
type shop struct {
	db       *sql.DB
	driver   *sqlite.Driver
	ledger   *ledger.Ledger[*sql.Tx]
	payments *ledger.Staged[*sql.Tx]
	provider *provider
	// told is called with everything that somebody outside may rely on from then on.
	told func(format string, args ...any)
}

// provider charges once for each key, and must never see other bytes under it.
type provider struct {
	mu      sync.Mutex
	charges map[reprise.Key]string
}

func (p *provider) charge(key reprise.Key, request []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.charges[key]; ok && before != string(request) {
		return fmt.Errorf("the key %s carried %q and then %q", key, before, request)
	}
	p.charges[key] = string(request)
	return nil
}

const schema = `
CREATE TABLE orders (id INTEGER PRIMARY KEY, ref TEXT NOT NULL UNIQUE);
CREATE TABLE payments (id INTEGER PRIMARY KEY, ref TEXT NOT NULL UNIQUE, state TEXT NOT NULL);`

// openShop opens the driver on db, with a schema.
func openShop(ctx context.Context, db *sql.DB, o *sqlite.Options, p *provider, told func(string, ...any)) (*shop, error) {
	d, err := sqlite.New(ctx, db, o)
	if err != nil {
		return nil, err
	}
	s := &shop{db: db, driver: d, provider: p, told: told}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return s, nil
}

func (s *shop) prepare(ctx context.Context) (err error) {
	if err := migrate.Up(ctx, s.driver); err != nil {
		return err
	}
	err = s.driver.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'payments'").Scan(&n); err != nil || n > 0 {
			return err
		}
		_, err := tx.ExecContext(ctx, schema)
		return err
	})
	if err != nil {
		return err
	}
	s.told("schema")
	s.ledger, err = ledger.New[*sql.Tx](s.driver, &ledger.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	s.payments, err = ledger.NewStaged(s.ledger, "pay", s.pay)
	return err
}

func (s *shop) close() error { return s.driver.Close() }

func intent(operation reprise.Operation, ref string) reprise.Intent {
	return reprise.Intent{
		Caller: "alice", Operation: operation, Key: reprise.Key(ref),
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion},
	}
}

func (s *shop) event(ctx context.Context, tx *sql.Tx, ref string) error {
	return s.driver.Enqueue(ctx, tx, reprise.Message{
		ID: ref, Source: "/shop", Type: "created", Subject: ref, Time: time.Now(), Data: []byte(ref),
	})
}

// order places the order ref under the key ref.
func (s *shop) order(ctx context.Context, ref string) (replayed bool, err error) {
	a, err := s.ledger.Do(ctx, intent("order", ref), ledger.Options{}, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (ref) VALUES (?)", ref); err != nil {
			return reprise.Result{}, err
		}
		return reprise.Result{Status: 201, Body: []byte("order " + ref)}, s.event(ctx, tx, ref)
	})
	if err == nil && string(a.Result.Body) != "order "+ref {
		err = fmt.Errorf("%s was answered with %q", ref, a.Result.Body)
	}
	if err == nil {
		s.told("order %s", ref)
	}
	return a.Replayed, err
}

// pay is the handler of payments. The provider is somebody outside: it relies on
// the request being frozen before it sees it.
func (s *shop) pay(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
	ref := string(run.Intent().Key)
	err := run.Tx(ctx, "reserve", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO payments (ref, state) VALUES (?, 'reserved')", ref)
		return err
	})
	if err != nil {
		return err
	}
	s.told("reserved %s", ref)
	request := fmt.Appendf(nil, "charge %s in drive %d", ref, run.Drive()) // differs, were it not frozen
	response, err := run.Call(ctx, "charge", request, func(_ context.Context, key reprise.Key, request []byte) ([]byte, error) {
		s.told("sent %s %s", ref, request)
		return []byte("charged"), s.provider.charge(key, request)
	})
	if err != nil {
		return err
	}
	s.told("charged %s", ref)
	_, err = run.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		if _, err := tx.ExecContext(ctx, "UPDATE payments SET state = 'paid' WHERE ref = ?", ref); err != nil {
			return reprise.Result{}, err
		}
		return reprise.Result{Status: 201, Body: response}, s.event(ctx, tx, ref)
	})
	return err
}

func (s *shop) payment(ctx context.Context, ref string) (replayed bool, err error) {
	a, err := s.payments.Do(ctx, intent("pay", ref), ledger.Options{}, []byte(ref))
	if err == nil && string(a.Result.Body) != "charged" {
		err = fmt.Errorf("%s was answered with %q", ref, a.Result.Body)
	}
	if err == nil {
		s.told("paid %s", ref)
	}
	return a.Replayed, err
}

// deliver moves the relay's position over what waits, and tells the receiver of
// each event. What was told before the position is recorded may be told again.
func (s *shop) deliver(ctx context.Context, to func(ref string)) error {
	r := s.driver.Relay()
	slots, err := r.Acquire(ctx, "relay", time.Minute, 1)
	if err != nil || len(slots) == 0 {
		return errors.Join(err, errors.New("no slot"))
	}
	p, err := r.Fetch(ctx, slots[0], 100)
	if err != nil {
		return err
	}
	for _, m := range p.Messages {
		to(string(m.Data))
	}
	if err := r.Advance(ctx, slots[0], p, nil); err != nil {
		return err
	}
	s.told("delivered %s", p.Position)
	return r.Release(ctx, slots[0])
}

// refs names n things.
func refs(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// firstLife is the whole job: everything there is, alone and together, with the
// log written back on the way and at the end.
func (s *shop) firstLife(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	_, err := s.order(ctx, "alone")
	must(err)
	_, err = s.payment(ctx, "payment")
	must(err)
	s.together(t, refs("first", 5))
	must(s.deliver(ctx, func(string) {}))
	for range 1000 { // the driver looks at its log once in many requests
		if s.driver.Stats().LogRenewals > 0 {
			break
		}
		must(s.driver.Transact(ctx, func(context.Context, *sql.Tx) error { return nil }))
	}
	if s.driver.Stats().LogRenewals == 0 {
		t.Error("the log did not begin anew")
	}
	_, err = s.order(ctx, "between")
	must(err)
	_, err = s.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	must(err)
	s.together(t, refs("second", 5))
	must(s.deliver(ctx, func(string) {}))
	replayed, err := s.order(ctx, "alone")
	must(err)
	if !replayed {
		t.Error("a repeat was not recognised")
	}
}

func (s *shop) together(t *testing.T, refs []string) {
	t.Helper()
	var wg sync.WaitGroup
	for _, ref := range refs {
		wg.Go(func() {
			if _, err := s.order(t.Context(), ref); err != nil {
				t.Errorf("%s: %v", ref, err)
			}
		})
	}
	wg.Wait()
}

var orders = append(append([]string{"alone", "between"}, refs("first", 5)...), refs("second", 5)...)

// missing returns what was acknowledged and is not in the database, and what is
// there in part.
func missing(db *sql.DB, acknowledged []string) (lost, partial []string, err error) {
	count := func(query string, args ...any) int {
		var n int
		if err == nil {
			err = db.QueryRow(query, args...).Scan(&n)
		}
		return n
	}
	if count("SELECT count(*) FROM sqlite_master WHERE name = 'payments'") == 0 {
		return acknowledged, nil, err
	}
	for _, label := range acknowledged {
		what, ref, _ := strings.Cut(label, " ")
		n := 1
		switch what {
		case "order":
			n = count("SELECT count(*) FROM orders JOIN reprise_ledger ON key = ref AND state = 'completed' AND body = CAST(? AS BLOB) "+
				"JOIN reprise_outbox ON message_id = ref WHERE ref = ?", label, ref)
		case "paid":
			n = count("SELECT count(*) FROM payments AS p JOIN reprise_ledger ON key = ref AND reprise_ledger.state = 'completed' "+
				"JOIN reprise_outbox ON message_id = ref WHERE ref = ? AND p.state = 'paid'", ref)
		case "reserved":
			n = count("SELECT count(*) FROM payments JOIN reprise_step ON name = 'reserve' WHERE ref = ?", ref)
		case "sent":
			_, request, _ := strings.Cut(ref, " ")
			n = count("SELECT count(*) FROM reprise_step WHERE name = 'charge' AND request = CAST(? AS BLOB)", request)
		case "charged":
			n = count("SELECT count(*) FROM reprise_step WHERE name = 'charge' AND state = 'done' AND outcome = 'succeeded'")
		case "delivered":
			n = count("SELECT count(*) FROM reprise_outbox_slot WHERE position >= ?", ref)
		}
		if n != 1 {
			lost = append(lost, label)
		}
	}
	rows, err2 := db.Query("SELECT coalesce(b.ref, l.key, m.message_id) FROM " +
		"(SELECT ref FROM orders UNION ALL SELECT ref FROM payments WHERE state = 'paid') AS b " +
		"FULL JOIN (SELECT key FROM reprise_ledger WHERE state = 'completed') AS l ON b.ref = l.key " +
		"FULL JOIN reprise_outbox AS m ON m.message_id = coalesce(b.ref, l.key) " +
		"WHERE b.ref IS NULL OR l.key IS NULL OR m.message_id IS NULL")
	if err2 != nil {
		return lost, nil, errors.Join(err, err2)
	}
	defer rows.Close()
	for rows.Next() {
		var ref string
		if err := rows.Scan(&ref); err != nil {
			return lost, partial, err
		}
		partial = append(partial, ref)
	}
	return lost, partial, errors.Join(err, rows.Err())
}

// retained keeps what was delivered, for the counts, and has the log written back
// every few pages.
var retained = &sqlite.Options{DeliveredRetention: time.Hour, BusyTimeout: 20 * time.Second, LogSize: 64 << 10}

var _ store.Driver[*sql.Tx] = (*sqlite.Driver)(nil)
