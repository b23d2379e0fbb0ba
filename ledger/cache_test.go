// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// shelf is a store of records that counts how often it is asked. Its clock is the
// bubble's, like the process's.
type shelf struct {
	store.Driver[struct{}]
	mu      sync.Mutex
	records map[reprise.IntentID]store.Entry
	asked   int
}

func (s *shelf) Execute(ctx context.Context, c store.Claim, work func(context.Context, struct{}) (store.Completion, error)) (store.Entry, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if e, ok := s.records[c.Intent.ID()]; ok {
		e.Result = copyResult(e.Result)
		if e.State == reprise.StateCompleted && !time.Now().Before(e.ExpiresAt) {
			e.State, e.Result = reprise.StateTombstone, reprise.Result{Status: e.Result.Status}
		}
		return e, false, nil
	}
	done, err := work(ctx, struct{}{})
	if err != nil {
		return store.Entry{}, false, err
	}
	e := store.Entry{
		ID: c.Intent.ID(), Intent: c.Intent, State: reprise.StateCompleted, Token: c.Token, Result: copyResult(done.Result),
		CompletedAt: time.Now(), ExpiresAt: time.Now().Add(done.Retention), TombstoneUntil: time.Now().Add(done.Tombstone),
	}
	if done.OmitBody {
		e.State = reprise.StateTombstone
	}
	s.records[e.ID] = e
	return e, true, nil
}

func TestCache(t *testing.T) {
	t.Parallel()
	intent := func(caller reprise.Caller, key reprise.Key, content byte) reprise.Intent {
		return reprise.Intent{Caller: caller, Operation: "create-order", Key: key, Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, content}}
	}
	in := intent("alice", "k", 1)
	type fixture struct {
		*testing.T
		*shelf
		l    *Ledger[struct{}]
		made int
	}
	setup := func(t *testing.T, c Config, test func(f *fixture)) {
		synctest.Test(t, func(t *testing.T) {
			f := &fixture{T: t, shelf: &shelf{records: make(map[reprise.IntentID]store.Entry)}}
			l, err := New[struct{}](f.shelf, &c)
			if err != nil {
				t.Fatal(err)
			}
			f.l = l
			test(f)
		})
	}
	do := func(f *fixture, in reprise.Intent, o Options) (Answer, error) {
		return f.l.Do(f.Context(), in, o, func(context.Context, struct{}) (reprise.Result, error) {
			f.made++
			return reprise.Result{Status: 201, Body: fmt.Appendf(nil, "body %d", f.made), Header: map[string][]string{"Content-Type": {"text/plain"}}}, nil
		})
	}
	// wants asks for an intent, and how often the store has been asked by then.
	wants := func(f *fixture, in reprise.Intent, body string, asked int) {
		f.Helper()
		a, err := do(f, in, Options{})
		if err != nil || string(a.Result.Body) != body || f.asked != asked {
			f.Errorf("got %q after asking the store %d times, %v; want %q after %d", a.Result.Body, f.asked, err, body, asked)
		}
		// The answer is the caller's own.
		a.Result.Body[0] = 'X'
		a.Result.Header["Content-Type"][0] = "X"
	}

	t.Run("a repeat is answered from memory for as long as it says, and then from the store", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{CacheFor: 5 * time.Second}, func(f *fixture) {
			for range 3 {
				wants(f, in, "body 1", 1)
			}
			time.Sleep(5*time.Second - 1)
			wants(f, in, "body 1", 1)
			time.Sleep(time.Nanosecond)
			wants(f, in, "body 1", 2)
			wants(f, in, "body 1", 2)
			if s := f.l.Stats(); s.Executed != 1 || s.Replayed != 5 || s.Cached != 4 {
				f.Errorf("stats %+v", s)
			}
		})
	})

	t.Run("by default nothing is", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{}, func(f *fixture) {
			wants(f, in, "body 1", 1)
			wants(f, in, "body 1", 2)
		})
	})

	t.Run("L6: other content is refused from memory too", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{CacheFor: time.Second}, func(f *fixture) {
			wants(f, in, "body 1", 1)
			if _, err := do(f, intent("alice", "k", 2), Options{}); !errors.Is(err, reprise.ErrKeyReused) || f.asked != 1 {
				f.Errorf("got %v after asking the store %d times, want ErrKeyReused", err, f.asked)
			}
			wants(f, in, "body 1", 1)
		})
	})

	t.Run("K4: another caller's key is another's", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{CacheFor: time.Second}, func(f *fixture) {
			wants(f, in, "body 1", 1)
			wants(f, intent("bob", "k", 1), "body 2", 2)
			wants(f, in, "body 1", 2)
		})
	})

	t.Run("L9: never beyond its retention, nor within what the clocks may differ by", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{CacheFor: time.Minute, KeyFuture: 20 * time.Second}, func(f *fixture) {
			o := Options{Retention: 50 * time.Second, Tombstone: time.Hour}
			if _, err := do(f, in, o); err != nil {
				f.Fatal(err)
			}
			time.Sleep(30*time.Second - 1)
			wants(f, in, "body 1", 1)
			time.Sleep(time.Nanosecond)
			wants(f, in, "body 1", 2) // from the store, and not put back
			wants(f, in, "body 1", 3)
			time.Sleep(20 * time.Second)
			if _, err := do(f, in, o); !errors.Is(err, reprise.ErrKeyExpired) {
				f.Errorf("after its retention: %v, want ErrKeyExpired", err)
			}
		})
	})

	t.Run("what is taken away in the database is gone here soon after", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{CacheFor: time.Second}, func(f *fixture) {
			wants(f, in, "body 1", 1)
			f.records[in.ID()] = store.Entry{Intent: in, State: reprise.StateTombstone, Result: reprise.Result{Reference: "/orders/1"}}
			wants(f, in, "body 1", 1)
			time.Sleep(time.Second)
			if _, err := do(f, in, Options{}); !errors.Is(err, reprise.ErrKeyExpired) {
				f.Errorf("an erased result: %v, want ErrKeyExpired", err)
			}
		})
	})

	t.Run("what is not a stored result is not kept", func(t *testing.T) {
		t.Parallel()
		setup(t, Config{CacheFor: time.Minute, MaxBody: 3}, func(f *fixture) {
			if a, err := do(f, in, Options{}); err != nil || string(a.Result.Body) != "body 1" {
				f.Fatalf("%q, %v", a.Result.Body, err)
			}
			if _, err := do(f, in, Options{}); !errors.Is(err, reprise.ErrKeyExpired) || f.asked != 2 {
				f.Errorf("over the size limit: %v after asking %d times", err, f.asked)
			}
			running := intent("alice", "running", 1)
			f.records[running.ID()] = store.Entry{Intent: running, State: reprise.StateInProgress}
			for n := range 2 {
				asked := f.asked
				if _, err := do(f, running, Options{Wait: time.Nanosecond}); !errors.Is(err, reprise.ErrInProgress) || f.asked == asked {
					f.Errorf("in progress, time %d: %v after asking %d times more", n, err, f.asked-asked)
				}
			}
			if len(f.l.cache.entries) != 0 {
				f.Errorf("%d records are kept", len(f.l.cache.entries))
			}
		})
	})

	t.Run("it is bounded in number and in bytes, and the oldest goes", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]Config{
			"entries": {CacheFor: time.Minute, CacheEntries: 10},
			"bytes":   {CacheFor: time.Minute, CacheBytes: 10 * (overhead + 100)},
		} {
			setup(t, c, func(f *fixture) {
				for n := range 100 {
					if _, err := do(f, intent("alice", reprise.Key(fmt.Sprint(n)), 1), Options{}); err != nil {
						f.Fatal(err)
					}
					if k := f.l.cache; len(k.entries) > 12 || len(k.queue) != len(k.entries) || k.bytes > 10*(overhead+100) {
						f.Fatalf("%s: %d records, %d in the queue, %d bytes", name, len(k.entries), len(k.queue), k.bytes)
					}
				}
				wants(f, intent("alice", "99", 1), "body 100", 100)
				wants(f, intent("alice", "0", 1), "body 1", 101)
				time.Sleep(time.Minute)
				wants(f, intent("alice", "99", 1), "body 100", 102)
				if k := f.l.cache; len(k.entries) != 1 || len(k.queue) != 1 || k.bytes == 0 {
					f.Errorf("%s: %d records and %d bytes are left", name, len(k.entries), k.bytes)
				}
			})
		}
	})
}
