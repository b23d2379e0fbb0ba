// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// proxied is a fixture whose driver speaks through a proxy.
func proxied(t *testing.T) (*fixture, *proxy) {
	t.Helper()
	dsn := createSchema(t)
	p, through := startProxy(t, dsn)
	return setupOn(t, nil, dsn, openDB(t, dsn), openDB(t, through)), p
}

func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(*link, []byte)
		kept int
	}{
		"lost before the server had it":   {lose, 0},
		"answer lost after it took place": {loseAnswer, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := proxied(t)
			in := intent("k-1")
			mine := claim(in)
			fired := p.arm(c.do)
			_, executed, err := f.order(f.ctx, mine, func(ctx context.Context, tx *sql.Tx) error { return f.Enqueue(ctx, tx, message("m-1", "a")) })
			if executed || !errors.Is(err, store.ErrCommitUnknown) {
				t.Errorf("executed %t, error %v; want ErrCommitUnknown", executed, err)
			}
			fired()
			e, err := f.Resolve(f.ctx, in)
			if c.kept == 1 && (err != nil || e.Token != mine.Token) {
				t.Errorf("resolved token %x, error %v; want the attempt's own %x", e.Token, err, mine.Token)
			}
			if c.kept == 0 && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("resolved error %v, want ErrNotFound", err)
			}
			f.want(in, c.kept, c.kept)
			if n := f.count("SELECT count(*) FROM reprise_outbox"); n != c.kept {
				t.Errorf("%d messages, want %d", n, c.kept)
			}
			if _, executed, err := f.order(f.ctx, claim(in), nil); err != nil || executed != (c.kept == 0) {
				t.Errorf("the next attempt: executed %t, error %v", executed, err)
			}
			f.want(in, 1, 1)

			fired = p.arm(c.do)
			err = f.Transact(f.ctx, func(ctx context.Context, tx *sql.Tx) error { return insert(ctx, tx, intent("k-2")) })
			if !errors.Is(err, store.ErrCommitUnknown) {
				t.Errorf("transact: %v, want ErrCommitUnknown", err)
			}
			fired()
			f.until("the session is over", func() bool { return f.count("SELECT count(*) FROM orders WHERE ref = 'k-2'") == c.kept })
		})
	}
}

// TestResolveWaits keeps a COMMIT on its way while the attempt that sent it has
// lost its connection: the server's session is alive, and may yet commit.
func TestResolveWaits(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"the commit arrives late": true, "the commit is lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := proxied(t)
			in := intent(reprise.NewKey())
			mine := claim(in)
			var server *link
			var commit []byte
			fired := p.arm(func(l *link, message []byte) {
				close(l.mute)
				server, commit = l, message
				_ = l.client.Close()
			})
			if _, _, err := f.order(f.ctx, mine, nil); !errors.Is(err, store.ErrCommitUnknown) {
				t.Fatalf("%v, want ErrCommitUnknown", err)
			}
			fired()
			type answer struct {
				e   store.Entry
				err error
			}
			resolved := make(chan answer, 1)
			go func() {
				e, err := f.Resolve(f.ctx, in)
				resolved <- answer{e, err}
			}()
			id := in.ID()
			f.until("Resolve waits for the lock", func() bool {
				select {
				case a := <-resolved:
					t.Fatalf("Resolve decided while the session was alive: state %q, error %v", a.e.State, a.err)
				default:
				}
				return f.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND ((classid::bigint << 32) | objid::bigint) = "+
					"(('x' || right($1, 16))::bit(64)::bigint # ('reprise_ledger'::regclass::oid::bigint << 16))", id.String()) == 1
			})
			if _, _, err := f.order(f.ctx, claim(in), nil); !errors.Is(err, store.ErrBusy) {
				t.Errorf("another attempt meanwhile: %v, want ErrBusy", err)
			}
			if arrives {
				_, _ = server.server.Write(commit)
				_, _ = server.server.Write([]byte{'X', 0, 0, 0, 4})
			} else {
				_ = server.server.Close()
			}
			a := <-resolved
			if arrives && (a.err != nil || a.e.Token != mine.Token) {
				t.Errorf("token %x, error %v; want the record of %x", a.e.Token, a.err, mine.Token)
			}
			if !arrives && !errors.Is(a.err, store.ErrNotFound) {
				t.Errorf("error %v, want ErrNotFound", a.err)
			}
			_ = server.server.Close()
		})
	}
}
