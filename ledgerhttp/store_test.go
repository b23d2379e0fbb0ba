// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/wire"
)

func TestStoreFaults(t *testing.T) {
	t.Parallel()

	t.Run("L15 without its store the service refuses, with a key and without", func(t *testing.T) {
		t.Parallel()
		var opened store.Driver[*sql.Tx]
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] {
				opened = d
				return d
			}
		})
		check(t, opened.(interface{ Close() error }).Close())
		for _, c := range []call{post(newKey(), orderBody), post("", orderBody).to("/notes")} {
			a := s.send(c)
			a.want(t, 503, reprise.CodeStoreUnavailable)
			if a.header.Get("Retry-After") != "1" || a.header.Get(wire.HeaderRetryContext) != "processed=?0" {
				t.Errorf("got %v", a.header)
			}
		}
		s.wantRows("r", 0)
	})
	t.Run("L7 a COMMIT whose answer was lost is found, and answered as what it was", func(t *testing.T) {
		t.Parallel()
		fired := 0
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &silent{d, true, &fired} }
		})
		c := post(newKey(), orderBody)
		first := s.send(c)
		first.want(t, 201, "")
		first.wantReplay(t, false)
		again := s.send(c)
		again.wantReplay(t, true)
		again.wantSame(t, first)
		if fired != 1 {
			t.Fatalf("the fault fired %d times, want 1", fired)
		}
		s.wantRows("r", 1)
	})
	t.Run("L7 a COMMIT that never arrived is run again", func(t *testing.T) {
		t.Parallel()
		fired := 0
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &silent{d, false, &fired} }
		})
		a := s.send(post(newKey(), orderBody))
		a.want(t, 201, "")
		a.wantReplay(t, false)
		if fired != 1 || s.runs.Load() != 2 {
			t.Fatalf("the fault fired %d times in %d runs, want 1 in 2", fired, s.runs.Load())
		}
		s.wantRows("r", 1)
	})
	t.Run("L7 without a key a lost COMMIT is told as unknown, and not run again", func(t *testing.T) {
		t.Parallel()
		fired := 0
		s := setup(t, func(o *options) {
			o.driver = func(d store.Driver[*sql.Tx]) store.Driver[*sql.Tx] { return &silent{d, true, &fired} }
		})
		a := s.send(post("", orderBody).to("/notes"))
		a.want(t, 503, reprise.CodeOutcomeUnknown)
		if a.header.Get(wire.HeaderRetryContext) != "" {
			t.Errorf("an unknown outcome is told as %q", a.header.Get(wire.HeaderRetryContext))
		}
		if fired != 1 || s.runs.Load() != 1 {
			t.Fatalf("the fault fired %d times in %d runs, want 1 in 1", fired, s.runs.Load())
		}
		s.wantRows("r", 1)
	})
}

// silent loses the answer to the first COMMIT, which did its work or did not.
type silent struct {
	store.Driver[*sql.Tx]
	committed bool
	fired     *int
}

func (d *silent) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, *sql.Tx) (store.Completion, error),
) (store.Entry, bool, error) {
	if *d.fired > 0 {
		return d.Driver.Execute(ctx, c, work)
	}
	*d.fired++
	_, _, err := d.Driver.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		completion, err := work(ctx, tx)
		if err == nil && !d.committed {
			err = store.ErrCommitUnknown
		}
		return completion, err
	})
	if err == nil {
		err = store.ErrCommitUnknown
	}
	return store.Entry{}, false, err
}

func (d *silent) Transact(ctx context.Context, work func(context.Context, *sql.Tx) error) error {
	*d.fired++
	if err := d.Driver.Transact(ctx, work); err != nil {
		return err
	}
	return store.ErrCommitUnknown
}
