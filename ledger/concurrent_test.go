// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

// TestDoConcurrent counts effects and answers where many callers meet.
func TestDoConcurrent(t *testing.T) {
	t.Parallel()
	const callers = 64
	type got struct {
		fingerprint byte
		answer      ledger.Answer
		err         error
	}
	// meet lets callers with the given fingerprints begin at one moment, spread
	// over the ledgers.
	meet := func(t *testing.T, fingerprint func(i int) byte, work func(i int) ledger.Work[*sql.Tx], shops ...*shop) []got {
		t.Helper()
		results := make([]got, callers)
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				<-begin
				r := got{fingerprint: fingerprint(i)}
				l := shops[i%len(shops)].ledger
				r.answer, r.err = l.Do(context.Background(), intentOf("k", r.fingerprint), ledger.Options{Wait: 20 * time.Second}, work(i))
				results[i] = r
			})
		}
		close(begin)
		wg.Wait()
		return results
	}
	same := func(int) byte { return 1 }

	t.Run("64 equal requests: one effect, 64 equal answers", func(t *testing.T) {
		t.Parallel()
		for _, processes := range []int{1, 2} {
			s := openShop(t, nil)
			shops := []*shop{s}
			for len(shops) < processes {
				shops = append(shops, s.reopen(nil))
			}
			executed := 0
			results := meet(t, same, func(int) ledger.Work[*sql.Tx] { return s.ordering("tea") }, shops...)
			for _, r := range results {
				if r.err != nil || !reflect.DeepEqual(r.answer.Result, results[0].answer.Result) {
					t.Errorf("got %+v, %v; want %+v", r.answer, r.err, results[0].answer)
				}
				if !r.answer.Replayed {
					executed++
				}
			}
			if executed != 1 {
				t.Errorf("%d answers say that they executed", executed)
			}
			s.effects(1)
		}
	})

	t.Run("64 requests with two contents: one effect, every caller with the other content is told", func(t *testing.T) {
		t.Parallel()
		for _, processes := range []int{1, 2} {
			s := openShop(t, nil)
			shops := []*shop{s}
			for len(shops) < processes {
				shops = append(shops, s.reopen(nil))
			}
			results := meet(t, func(i int) byte { return byte(i/processes%2) + 1 },
				func(int) ledger.Work[*sql.Tx] { return s.ordering("tea") }, shops...)
			var winner byte
			for _, r := range results {
				if r.err == nil {
					winner = r.fingerprint
				}
			}
			for _, r := range results {
				if ok := r.fingerprint == winner; ok != (r.err == nil) || !ok && !errors.Is(r.err, reprise.ErrKeyReused) {
					t.Errorf("%d processes: content %d got %v, and content %d was executed", processes, r.fingerprint, r.err, winner)
				}
			}
			s.effects(1)
		}
	})

	t.Run("leaders that fail or panic are followed, one by one, until one succeeds", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		var mu sync.Mutex
		runs := 0
		results := meet(t, same, func(int) ledger.Work[*sql.Tx] {
			return func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				mu.Lock()
				runs++
				n := runs
				mu.Unlock()
				r, err := s.ordering("tea")(ctx, tx)
				if n <= 10 {
					return r, errors.Join(err, errors.New("broken"))
				}
				return r, err
			}
		}, s)
		failed := 0
		for _, r := range results {
			if r.err != nil {
				failed++
				if reprise.OutcomeOf(r.err) != reprise.NotProcessed {
					t.Errorf("got %v", r.err)
				}
			}
		}
		if failed != 10 || runs != 11 {
			t.Errorf("%d failed in %d runs, want 10 in 11", failed, runs)
		}
		s.effects(1)
	})

	t.Run("callers who wait hold no connection", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		entered, release := make(chan struct{}), make(chan struct{})
		st, err := ledger.NewStaged(s.ledger, "pay", func(ctx context.Context, run *ledger.Run[*sql.Tx]) error {
			_, err := run.Call(ctx, "charge", nil, func(context.Context, reprise.Key, []byte) ([]byte, error) {
				close(entered)
				<-release
				return nil, nil
			})
			if err != nil {
				return err
			}
			_, err = run.Finish(ctx, s.ordering("tea"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if _, err := st.Do(t.Context(), payment("slow", 1), ledger.Options{Wait: time.Minute}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		<-entered
		// The pool has four connections, and one is the writer's.
		for i := range 20 {
			if _, err := s.ledger.Do(t.Context(), intentOf(reprise.Key(fmt.Sprint(i)), 1), ledger.Options{Wait: time.Second}, s.ordering("tea")); err != nil {
				t.Error(err)
			}
			if n := s.db.Stats().InUse; n > 2 {
				t.Errorf("%d connections are in use", n)
			}
		}
		close(release)
		wg.Wait()
		s.effects(21)
	})
}
