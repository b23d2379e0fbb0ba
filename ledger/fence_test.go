// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
)

// deaf is a driver whose renewals don't get through, as in a process that is
// stopped.
type deaf struct{ store.Driver[*sql.Tx] }

func (deaf) Renew(context.Context, store.Ownership, time.Duration) error { return store.ErrUnavailable }

// TestStagedSQLite holds what a real database must do for a staged run.
func TestStagedSQLite(t *testing.T) {
	t.Parallel()
	in := payment("k", 1)
	// paying declares a payment with a call that does what charge does.
	paying := func(t *testing.T, s *shop, charge func(key reprise.Key) ([]byte, error)) *ledger.Staged[*sql.Tx] {
		t.Helper()
		st, err := ledger.NewStaged(s.ledger, "pay", func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
			response, err := run.Call(ctx, "charge", run.Input(), func(_ context.Context, key reprise.Key, _ []byte) ([]byte, error) {
				return charge(key)
			})
			if err != nil {
				return err
			}
			_, err = run.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				r, err := s.ordering("paid")(ctx, tx)
				r.Body = response
				return r, err
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}

	t.Run("64 equal requests in two processes: one call, one effect, 64 equal answers", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		var mu sync.Mutex
		calls := 0
		charge := func(reprise.Key) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return []byte("charged"), nil
		}
		staged := []*ledger.Staged[*sql.Tx]{paying(t, s, charge), paying(t, s.reopen(nil), charge)}
		begin := make(chan struct{})
		var wg sync.WaitGroup
		executed := 0
		for i := range 64 {
			wg.Go(func() {
				<-begin
				a, err := staged[i%2].Do(t.Context(), in, ledger.Options{Wait: 20 * time.Second}, []byte("10 EUR"))
				if err != nil || a.Result.Status != 201 || string(a.Result.Body) != "charged" {
					t.Errorf("got %+v, %v", a, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if !a.Replayed {
					executed++
				}
			})
		}
		close(begin)
		wg.Wait()
		if calls != 1 || executed != 1 {
			t.Errorf("%d calls, and %d answers say that they executed", calls, executed)
		}
		s.effects(1)
	})

	t.Run("S2 S3: a zombie is fenced off by the database", func(t *testing.T) {
		t.Parallel()
		c := &ledger.Config{Lease: shortLease}
		s := openShop(t, c)
		l, err := ledger.New[*sql.Tx](deaf{s.driver}, c)
		if err != nil {
			t.Fatal(err)
		}
		zombie := *s
		zombie.ledger = l
		called, thaw := make(chan struct{}), make(chan struct{})
		first := paying(t, &zombie, func(reprise.Key) ([]byte, error) {
			close(called)
			<-thaw
			return []byte("zombie"), nil
		})
		type told struct {
			answer ledger.Answer
			err    error
		}
		done := make(chan told, 1)
		go func() {
			a, err := first.Do(t.Context(), in, ledger.Options{}, []byte("10 EUR"))
			done <- told{a, err}
		}()
		<-called
		start := time.Now()
		second := paying(t, s.reopen(c), func(reprise.Key) ([]byte, error) { return []byte("successor"), nil })
		if _, err := second.Do(t.Context(), payment("k", 2), ledger.Options{}, nil); !errors.Is(err, reprise.ErrKeyReused) {
			t.Errorf("L6: another content got %v while the run is in another process", err)
		}
		a, err := second.Do(t.Context(), in, ledger.Options{Wait: 10 * time.Second}, []byte("10 EUR"))
		if err != nil || string(a.Result.Body) != "successor" || a.Replayed {
			t.Fatalf("got %+v, %v", a, err)
		}
		t.Logf("taken over after %v", time.Since(start))
		close(thaw)
		if z := <-done; z.err != nil || !z.answer.Replayed || string(z.answer.Result.Body) != "successor" {
			t.Errorf("the zombie's client got %+v, %v; want its successor's result", z.answer, z.err)
		}
		s.effects(1)
		if n := s.count("SELECT count(*) FROM reprise_step WHERE CAST(response AS TEXT) = 'zombie'"); n != 0 {
			t.Errorf("the zombie wrote its answer down")
		}
	})

	t.Run("a refused run leaves no row", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		st, err := ledger.NewStaged(s.ledger, "pay", func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
			return run.Tx(ctx, "reserve", func(ctx context.Context, tx *sql.Tx) error {
				_, err := s.order(ctx, tx, "reserved")
				return errors.Join(err, ledger.Refuse(reprise.Result{Status: 404}))
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := st.Do(t.Context(), in, ledger.Options{}, nil); err != nil || a.Result.Status != 404 {
			t.Errorf("got %+v, %v", a, err)
		}
		s.effects(0)
		if n := s.count("SELECT count(*) FROM reprise_ledger"); n != 0 {
			t.Errorf("%d records", n)
		}
	})

	t.Run("L8: an oversize result of a run is answered once and refused from then on", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, &ledger.Config{MaxBody: 3})
		st := paying(t, s, func(reprise.Key) ([]byte, error) { return []byte("charged"), nil })
		a, err := st.Do(t.Context(), in, ledger.Options{}, nil)
		if err != nil || string(a.Result.Body) != "charged" || !a.ExpiresAt.IsZero() {
			t.Errorf("got %+v, %v", a, err)
		}
		_, err = st.Do(t.Context(), in, ledger.Options{}, nil)
		if e, ok := errors.AsType[*reprise.Error](err); !ok || e.Code != reprise.CodeKeyExpired || e.Reference != "/orders/1" {
			t.Errorf("got %v", err)
		}
		s.effects(1)
	})
}

// slowAnswer is a driver whose first Begin commits, and whose answer is lost
// while the process is paused for longer than a lease.
type slowAnswer struct {
	store.Driver[*sql.Tx]
	begun, goOn chan struct{}
	once        sync.Once
}

func (d *slowAnswer) Begin(ctx context.Context, c store.Claim, input []byte, lease time.Duration) (e store.Entry, owned bool, err error) {
	e, owned, err = d.Driver.Begin(ctx, c, input, lease)
	d.once.Do(func() {
		close(d.begun)
		<-d.goOn
		e, owned, err = store.Entry{}, false, store.ErrCommitUnknown
	})
	return e, owned, err
}

// A process that wakes up and looks for its claim must not take the claim of
// the one that took the run over for its own (rule S2).
func TestStagedWakesAfterTakeover(t *testing.T) {
	t.Parallel()
	c := &ledger.Config{Lease: 300 * time.Millisecond}
	first := openShop(t, c)
	second := first.reopen(c)
	d := &slowAnswer{Driver: first.driver, begun: make(chan struct{}), goOn: make(chan struct{})}
	sleeper, err := ledger.New[*sql.Tx](d, c)
	if err != nil {
		t.Fatal(err)
	}
	driven, goOn := make(chan struct{}), make(chan struct{})
	handler := func(hold bool) ledger.Handler[*sql.Tx] {
		return func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
			if hold {
				close(driven)
				<-goOn
			}
			err := run.Tx(ctx, "reserve", func(ctx context.Context, tx *sql.Tx) error {
				_, err := first.ordering("reserved")(ctx, tx)
				return err
			})
			if err != nil {
				return err
			}
			_, err = run.Finish(ctx, func(context.Context, *sql.Tx) (reprise.Result, error) {
				return reprise.Result{Status: 200}, nil
			})
			return err
		}
	}
	asleep, err := ledger.NewStaged(sleeper, "pay", handler(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.NewStaged(second.ledger, "pay", handler(true)); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		_, err := asleep.Do(context.Background(), payment("k", 1), ledger.Options{Wait: 50 * time.Millisecond}, nil)
		told <- err
	}()
	<-d.begun
	recovered := make(chan ledger.RecoveryReport, 1)
	go func() {
		for {
			// The lease has to lapse first, by the database's clock.
			if r, err := second.ledger.Recover(context.Background()); err != nil || r.Found > 0 {
				recovered <- r
				return
			}
		}
	}()
	<-driven
	close(d.goOn)
	if err := <-told; !errors.Is(err, reprise.ErrInProgress) {
		t.Errorf("the one that woke up was told %v, want that the run is in progress", err)
	}
	close(goOn)
	if r := <-recovered; r.Completed != 1 {
		t.Errorf("recovery reports %+v, want one completed", r)
	}
	if n := first.count("SELECT count(*) FROM orders"); n != 1 {
		t.Errorf("the phase took effect %d times, want 1", n)
	}
}
