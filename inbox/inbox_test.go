// SPDX-License-Identifier: Apache-2.0

package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a consumer's database with a table of effects.
type bench struct {
	*sqlite.Driver
	t  *testing.T
	db *sql.DB
}

func setup(t *testing.T) *bench {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "consumer.db"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := sqlite.New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := migrate.Up(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	err = d.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE effect (id TEXT NOT NULL, content TEXT NOT NULL)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Driver: d, t: t, db: db}
}

func (b *bench) inbox(consumer string) *inbox.Inbox[*sql.Tx] {
	b.t.Helper()
	in, err := inbox.New[*sql.Tx](b.Driver, consumer, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

// counts checks how many effects and receipts there are.
func (b *bench) counts(effects, receipts int) {
	b.t.Helper()
	for table, want := range map[string]int{"effect": effects, "reprise_inbox": receipts} {
		var got int
		if err := b.db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+table).Scan(&got); err != nil {
			b.t.Fatal(err)
		}
		if got != want {
			b.t.Errorf("%d rows in %s, want %d", got, table, want)
		}
	}
}

func insert(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?, ?)", m.ID, string(m.Data))
	return err
}

func message(id string) reprise.Message {
	return reprise.Message{ID: id, Source: "/shop", Type: "order.created", Data: []byte(`{"n":1}`)}
}

var errBoom = errors.New("boom")

func TestDo(t *testing.T) {
	t.Parallel()
	expect := func(t *testing.T, got inbox.Disposition, err error, want inbox.Disposition) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("got %v and error %v, want %v", got, err, want)
		}
	}

	t.Run("I1 the effect happens once, however often the message comes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		for n := range 5 {
			want := inbox.Duplicate
			if n == 0 {
				want = inbox.Handled
			}
			got, err := in.Do(t.Context(), message("m1"), insert)
			expect(t, got, err, want)
		}
		b.counts(1, 1)
	})

	t.Run("a carrier's changes to headers, time and subject are no other content", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		m := message("m1")
		got, err := in.Do(t.Context(), m, insert)
		expect(t, got, err, inbox.Handled)
		m.Header, m.Time, m.Subject, m.ContentType = map[string]string{"redelivered": "true"}, time.Now(), "s", "text/plain"
		got, err = in.Do(t.Context(), m, insert)
		expect(t, got, err, inbox.Duplicate)
		b.counts(1, 1)
	})

	// CON-05: the scope is consumer, source and id.
	t.Run("I2 other consumers and other sources handle it too", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := message("m1")
		other.Source = "/billing"
		for _, c := range []struct {
			consumer string
			m        reprise.Message
		}{{"fulfilment", message("m1")}, {"mail", message("m1")}, {"fulfilment", other}, {"fulfilment", message("M1")}} {
			got, err := b.inbox(c.consumer).Do(t.Context(), c.m, insert)
			expect(t, got, err, inbox.Handled)
			got, err = b.inbox(c.consumer).Do(t.Context(), c.m, insert)
			expect(t, got, err, inbox.Duplicate)
		}
		b.counts(4, 4)
	})

	// CON-04: the same id with another content.
	t.Run("I3 another content under a known id is refused and executes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		if _, err := in.Do(t.Context(), message("m1"), insert); err != nil {
			t.Fatal(err)
		}
		data, typ := message("m1"), message("m1")
		data.Data = []byte(`{"n":2}`)
		typ.Type = "order.cancelled"
		// The bytes of both fields together are the same, divided otherwise.
		shifted := message("m1")
		shifted.Type, shifted.Data = "order.create", []byte(`d{"n":1}`)
		for _, m := range []reprise.Message{data, typ, shifted} {
			got, err := in.Do(t.Context(), m, insert)
			if !errors.Is(err, inbox.ErrPayloadDiffers) || got != 0 || reprise.OutcomeOf(err) != reprise.Rejected {
				t.Errorf("got %v and error %v, want ErrPayloadDiffers as a decision", got, err)
			}
			if err != nil && strings.Contains(err.Error(), `"n"`) {
				t.Errorf("error %q shows stored content", err)
			}
		}
		got, err := in.Do(t.Context(), message("m1"), insert)
		expect(t, got, err, inbox.Duplicate)
		b.counts(1, 1)
	})

	t.Run("a message that can't be recognised again is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, m := range []reprise.Message{{Source: "/shop"}, {ID: "m1"}} {
			got, err := b.inbox("fulfilment").Do(t.Context(), m, insert)
			if err == nil || got != 0 || reprise.OutcomeOf(err) != reprise.Rejected {
				t.Errorf("got %v and error %v, want a decision against it", got, err)
			}
		}
		b.counts(0, 0)
	})

	// go-micro-example#58 (bug 83): the receipt stood in a transaction of its own;
	// after a failure in between, the message was taken for handled for ever.
	t.Run("I5 bug 83 a failed effect leaves no receipt, and the next delivery runs it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		got, err := in.Do(t.Context(), message("m1"), func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
			return errors.Join(insert(ctx, tx, m), errBoom)
		})
		if !errors.Is(err, errBoom) || got != 0 {
			t.Errorf("got %v and error %v, want the effect's error", got, err)
		}
		b.counts(0, 0)
		func() {
			defer func() {
				if v := recover(); v != "on purpose" {
					t.Errorf("recovered %v, want the effect's panic", v)
				}
			}()
			_, _ = in.Do(t.Context(), message("m1"), func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
				_ = insert(ctx, tx, m)
				panic("on purpose")
			})
		}()
		b.counts(0, 0)
		got, err = in.Do(t.Context(), message("m1"), insert)
		expect(t, got, err, inbox.Handled)
		b.counts(1, 1)
	})

	// dotnetcore/CAP#1368 and faststream#3000 (bug 81): a cancelled handler was
	// taken for one that had succeeded.
	t.Run("I4 bug 81 cancelled is never handled, also when the effect says nil", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		ctx, cancel := context.WithCancel(t.Context())
		got, err := in.Do(ctx, message("m1"), func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
			err := insert(ctx, tx, m)
			cancel()
			<-ctx.Done()
			return err // nil: it gave up half-way and does not say so
		})
		if !errors.Is(err, context.Canceled) || got != 0 {
			t.Errorf("got %v and error %v, want context.Canceled", got, err)
		}
		b.counts(0, 0)
		if got, err := in.Do(ctx, message("m1"), insert); err == nil || got != 0 {
			t.Errorf("under a dead context: got %v and error %v", got, err)
		}
		b.counts(0, 0)
		got, err = in.Do(t.Context(), message("m1"), insert)
		expect(t, got, err, inbox.Handled)
		b.counts(1, 1)
	})

	// NServiceBus#6583 (bug 83) and CON-01: copies that arrive while the first is at
	// work. Both missed the record, and both ran.
	t.Run("bug 83 many deliveries at once have one effect", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var handled, duplicates, runs atomic.Int64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				got, err := b.inbox("fulfilment").Do(t.Context(), message("m1"), func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
					runs.Add(1)
					return insert(ctx, tx, m)
				})
				switch {
				case err != nil:
					t.Error(err)
				case got == inbox.Handled:
					handled.Add(1)
				case got == inbox.Duplicate:
					duplicates.Add(1)
				}
			})
		}
		wg.Wait()
		if handled.Load() != 1 || duplicates.Load() != 31 || runs.Load() != 1 {
			t.Errorf("%d handled in %d runs, %d duplicates; want 1 in 1, 31", handled.Load(), runs.Load(), duplicates.Load())
		}
		b.counts(1, 1)
	})

	t.Run("of two copies with other contents at once, one is handled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var handled, refused atomic.Int64
		var wg sync.WaitGroup
		for n := range 16 {
			wg.Go(func() {
				m := message("m1")
				m.Data = fmt.Appendf(nil, "%d", n)
				got, err := b.inbox("fulfilment").Do(t.Context(), m, insert)
				switch {
				case errors.Is(err, inbox.ErrPayloadDiffers):
					refused.Add(1)
				case got == inbox.Handled && err == nil:
					handled.Add(1)
				default:
					t.Errorf("got %v and error %v", got, err)
				}
			})
		}
		wg.Wait()
		if handled.Load() != 1 || refused.Load() != 15 {
			t.Errorf("%d handled, %d refused; want 1, 15", handled.Load(), refused.Load())
		}
		b.counts(1, 1)
	})

	t.Run("what the effect enqueues is committed with it, and only with it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		out, err := outbox.New(b.Driver, &outbox.Config{Source: "/fulfilment"})
		if err != nil {
			t.Fatal(err)
		}
		fail := true
		effect := func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
			err := errors.Join(insert(ctx, tx, m), out.Enqueue(ctx, tx, reprise.Message{Type: "order.shipped"}))
			if err == nil && fail {
				err = errBoom
			}
			return err
		}
		waiting := func(want int) {
			t.Helper()
			backlog, err := b.Relay().Backlog(t.Context())
			if err != nil || backlog.Waiting != want {
				t.Errorf("%d messages wait (%v), want %d", backlog.Waiting, err, want)
			}
		}
		if _, err := in.Do(t.Context(), message("m1"), effect); !errors.Is(err, errBoom) {
			t.Errorf("error = %v", err)
		}
		waiting(0)
		fail = false
		for range 3 {
			if _, err := in.Do(t.Context(), message("m1"), effect); err != nil {
				t.Fatal(err)
			}
		}
		waiting(1)
		b.counts(1, 1)
	})

	// wolverine GH-3767 (bug 58): with the inbox's database down a delivery was
	// neither acknowledged nor refused.
	t.Run("bug 58 with the database away every delivery is answered with an error", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.inbox("fulfilment")
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := in.Do(t.Context(), message("m1"), insert); !errors.Is(err, store.ErrUnavailable) || got != 0 {
			t.Errorf("got %v and error %v, want store.ErrUnavailable", got, err)
		}
	})
}

// conflicting is a driver whose transactions end in err after work has run, the
// first so many times.
type conflicting struct {
	*sqlite.Driver
	times int
	err   error
	kept  bool // commits nevertheless, as after a lost answer
}

func (d *conflicting) Transact(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	fails := d.times > 0
	d.times--
	err := d.Driver.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := work(ctx, tx); err != nil || !fails || d.kept {
			return err
		}
		return d.err
	})
	if err == nil && fails {
		return d.err
	}
	return err
}

func TestDoRerun(t *testing.T) {
	t.Parallel()
	do := func(t *testing.T, d *conflicting) (inbox.Disposition, int, error) {
		t.Helper()
		in, err := inbox.New[*sql.Tx](d, "fulfilment", &inbox.Config{MaxReruns: 3})
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		got, err := in.Do(t.Context(), message("m1"), func(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
			runs++
			return insert(ctx, tx, m)
		})
		return got, runs, err
	}

	t.Run("a lost conflict is run again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		got, runs, err := do(t, &conflicting{Driver: b.Driver, times: 3, err: store.ErrConflict})
		if err != nil || got != inbox.Handled || runs != 4 {
			t.Errorf("got %v after %d runs and error %v", got, runs, err)
		}
		b.counts(1, 1)
	})

	t.Run("not for ever", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		got, runs, err := do(t, &conflicting{Driver: b.Driver, times: 100, err: store.ErrConflict})
		if !errors.Is(err, store.ErrConflict) || got != 0 || runs != 4 {
			t.Errorf("got %v after %d runs and error %v", got, runs, err)
		}
		b.counts(0, 0)
	})

	t.Run("an unknown commit is an error, and the next delivery finds out", func(t *testing.T) {
		t.Parallel()
		for _, kept := range []bool{false, true} {
			b := setup(t)
			d := &conflicting{Driver: b.Driver, times: 1, err: store.ErrCommitUnknown, kept: kept}
			got, runs, err := do(t, d)
			if !errors.Is(err, store.ErrCommitUnknown) || got != 0 || runs != 1 || reprise.OutcomeOf(err) != reprise.Unknown {
				t.Errorf("kept %t: got %v after %d runs and error %v", kept, got, runs, err)
			}
			want := inbox.Handled
			if kept {
				want = inbox.Duplicate
			}
			if got, _, err := do(t, d); err != nil || got != want {
				t.Errorf("kept %t: the next delivery: got %v and error %v, want %v", kept, got, err, want)
			}
			b.counts(1, 1)
		}
	})
}

// TestHandler: the inbox as the sink of a relay in the same process. The two
// packages do not know each other; the interface is enough.
func TestHandler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var sink outbox.Sink = b.inbox("fulfilment").Handler(insert)
	for range 2 {
		if err := sink.Deliver(t.Context(), message("m1")); err != nil {
			t.Error(err)
		}
	}
	forged := message("m1")
	forged.Data = []byte("other")
	if err := sink.Deliver(t.Context(), forged); !errors.Is(err, inbox.ErrPayloadDiffers) {
		t.Errorf("error = %v", err)
	}
	b.counts(1, 1)
}

func TestNew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, construct := range map[string]func() (*inbox.Inbox[*sql.Tx], error){
		"no driver":   func() (*inbox.Inbox[*sql.Tx], error) { return inbox.New[*sql.Tx](nil, "c", nil) },
		"no consumer": func() (*inbox.Inbox[*sql.Tx], error) { return inbox.New[*sql.Tx](b.Driver, "", nil) },
		"a long consumer": func() (*inbox.Inbox[*sql.Tx], error) {
			return inbox.New[*sql.Tx](b.Driver, strings.Repeat("c", 256), nil)
		},
		"negative reruns ": func() (*inbox.Inbox[*sql.Tx], error) {
			return inbox.New[*sql.Tx](b.Driver, "c", &inbox.Config{MaxReruns: -1})
		},
	} {
		if in, err := construct(); err == nil || in != nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for d, want := range map[inbox.Disposition]string{0: "unhandled", inbox.Handled: "handled", inbox.Duplicate: "duplicate"} {
		if d.String() != want {
			t.Errorf("disposition %d = %q, want %q", d, d, want)
		}
	}
}
