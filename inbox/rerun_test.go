// SPDX-License-Identifier: Apache-2.0

package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/store"
)

// contended is a driver in which every transaction loses a conflict, after took.
type contended struct {
	store.Driver[int]
	took time.Duration
	runs []time.Time // when each began
}

func (d *contended) Transact(context.Context, func(ctx context.Context, tx int) error) error {
	d.runs = append(d.runs, time.Now())
	time.Sleep(d.took)
	return store.ErrConflict
}

func TestDoRerunPauses(t *testing.T) {
	t.Parallel()
	do := func(ctx context.Context, t *testing.T, d *contended, c *inbox.Config) (took time.Duration) {
		t.Helper()
		in, err := inbox.New(d, "fulfilment", c)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		done, err := in.Do(ctx, message("m1"), func(context.Context, int, reprise.Message) error { return nil })
		if done != 0 || !errors.Is(err, store.ErrConflict) {
			t.Errorf("got %v and error %v, want ErrConflict", done, err)
		}
		return time.Since(began)
	}

	t.Run("re-runs are spaced, ever wider up to 100 ms", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &contended{}
			took := do(t.Context(), t, d, nil)
			if len(d.runs) != 11 {
				t.Fatalf("%d runs, want 11", len(d.runs))
			}
			for n, limit := 0, time.Millisecond; n < 10; n, limit = n+1, min(2*limit, 100*time.Millisecond) {
				if pause := d.runs[n+1].Sub(d.runs[n]); pause < limit/2 || pause > limit {
					t.Errorf("the pause before re-run %d is %v, want %v to %v", n+1, pause, limit/2, limit)
				}
			}
			if took > 500*time.Millisecond {
				t.Errorf("Do took %v; want half a second at most", took)
			}
		})
	})

	t.Run("none begins later than 5 s, however many are allowed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &contended{}
			took := do(t.Context(), t, d, &inbox.Config{MaxReruns: 1_000_000})
			if took > 5*time.Second || len(d.runs) < 50 {
				t.Errorf("%d runs in %v, want at least 50 in less than 5 s", len(d.runs), took)
			}
		})
	})

	t.Run("a database that takes long to refuse is not asked for long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := &contended{took: 2 * time.Second}
			if took := do(t.Context(), t, d, nil); len(d.runs) != 3 || took > 7*time.Second {
				t.Errorf("%d runs in %v, want 3: at 0, 2 and 4 s", len(d.runs), took)
			}
		})
	})

	t.Run("a pause ends with its context", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			d := &contended{}
			if took := do(ctx, t, d, &inbox.Config{MaxReruns: 1_000_000}); took != 300*time.Millisecond {
				t.Errorf("Do took %v, want 300ms", took)
			}
		})
	})
}
