// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
)

// proxied is a process that speaks to its database through a proxy.
func proxied[TTx any](t *testing.T, h Harness[TTx]) (*service[TTx], *observer, *Proxy) {
	t.Helper()
	dsn := dbtest.PostgresDatabase(t)
	h.open(t, dsn, Options{}, nil) // Makes the tables.
	p, through := StartProxy(t, dsn)
	s, stop, err := h.start(t.Context(), through, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s, observe(t, dsn), p
}

func claim(in reprise.Intent) store.Claim {
	return store.Claim{Intent: in, Token: store.NewToken(), Number: 1}
}

// execute is one attempt at an order, by the driver alone.
func (s *service[TTx]) execute(ctx context.Context, c store.Claim) (store.Entry, bool, error) {
	work := s.work(c.Intent.Key)
	return s.driver.Execute(ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
		r, err := work(ctx, tx)
		return store.Completion{Result: r, Retention: time.Hour, Tombstone: 24 * time.Hour}, err
	})
}

// CommitUnknown loses a COMMIT, or its answer. The attempt must not say how it
// ended, and what the database says afterwards must be true.
func CommitUnknown[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for name, c := range map[string]struct {
		do   func(*Link, []byte)
		kept int
	}{
		"lost before the server had it":   {Lose, 0},
		"answer lost after it took place": {LoseAnswer, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commitUnknown(t, h, c.do, c.kept)
		})
	}
}

func commitUnknown[TTx any](t *testing.T, h Harness[TTx], do func(*Link, []byte), kept int) {
	s, see, p := proxied(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mine := claim(intent("k-1"))
	fired := p.Arm("COMMIT", do)
	_, executed, err := s.execute(ctx, mine)
	if executed || !errors.Is(err, store.ErrCommitUnknown) {
		t.Errorf("executed %t, error %v; want ErrCommitUnknown", executed, err)
	}
	fired()
	e, err := s.driver.Resolve(ctx, mine.Intent)
	if kept == 1 && (err != nil || e.Token != mine.Token) {
		t.Errorf("resolved token %x, error %v; want the attempt's own %x", e.Token, err, mine.Token)
	}
	if kept == 0 && !errors.Is(err, store.ErrNotFound) {
		t.Errorf("resolved error %v, want ErrNotFound", err)
	}
	see.effects(kept)
	if _, executed, err := s.execute(ctx, claim(mine.Intent)); err != nil || executed != (kept == 0) {
		t.Errorf("the next attempt: executed %t, error %v", executed, err)
	}
	see.effects(1)

	fired = p.Arm("COMMIT", do)
	err = s.driver.Transact(ctx, func(ctx context.Context, tx TTx) error {
		_, err := h.Number(ctx, tx, "INSERT INTO orders (ref) VALUES ($1) RETURNING id", "k-2")
		return err
	})
	if !errors.Is(err, store.ErrCommitUnknown) {
		t.Errorf("transact: %v, want ErrCommitUnknown", err)
	}
	fired()
	see.eventually("the session is over", func() bool {
		return see.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()") == 0
	})
	if n := see.number("SELECT count(*) FROM orders WHERE ref = 'k-2'"); n != kept {
		t.Errorf("transact left %d orders, want %d", n, kept)
	}
}

// ResolveWaits keeps a COMMIT on its way while the attempt that sent it has lost
// its connection: the server's session is alive, and may yet commit.
func ResolveWaits[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for name, arrives := range map[string]bool{"the commit arrives late": true, "the commit is lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resolveWaits(t, h, arrives)
		})
	}
}

func resolveWaits[TTx any](t *testing.T, h Harness[TTx], arrives bool) {
	s, see, p := proxied(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mine := claim(intent("k"))
	var late *Link
	var commit []byte
	fired := p.Arm("COMMIT", func(l *Link, message []byte) {
		late, commit = l, message
		l.Leave()
	})
	if _, _, err := s.execute(ctx, mine); !errors.Is(err, store.ErrCommitUnknown) {
		t.Fatalf("%v, want ErrCommitUnknown", err)
	}
	fired()
	type answer struct {
		e   store.Entry
		err error
	}
	resolved := make(chan answer, 1)
	go func() {
		e, err := s.driver.Resolve(ctx, mine.Intent)
		resolved <- answer{e, err}
	}()
	see.eventually("Resolve waits for the lock", func() bool {
		select {
		case a := <-resolved:
			t.Fatalf("Resolve decided while the session was alive: state %q, error %v", a.e.State, a.err)
		default:
		}
		return see.number("SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "+
			"WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted") == 1
	})
	if _, _, err := s.execute(ctx, claim(mine.Intent)); !errors.Is(err, store.ErrBusy) {
		t.Errorf("another attempt meanwhile: %v, want ErrBusy", err)
	}
	see.effects(0)
	kept := 0
	if arrives {
		kept = 1
		late.Finish(commit)
	} else {
		late.Abort()
	}
	a := <-resolved
	if arrives && (a.err != nil || a.e.Token != mine.Token) {
		t.Errorf("token %x, error %v; want the record of %x", a.e.Token, a.err, mine.Token)
	}
	if !arrives && !errors.Is(a.err, store.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", a.err)
	}
	see.effects(kept)
}
