// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
)

// mintedAt is a UUIDv7 of a given time.
func mintedAt(at time.Time) reprise.Key {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return reprise.Key(ms[:8] + "-" + ms[8:] + "-7abc-8123-" + hex.EncodeToString([]byte("abcdef")))
}

// TestExpiry ages stored records with SQL, because their age is judged by the
// database, and keys by the clock that Config.Now stands for.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const (
		bodyGone      = "UPDATE reprise_ledger SET expires_at = 1"
		tombstoneGone = "UPDATE reprise_ledger SET expires_at = 1, tombstone_until = 1"
		day           = 24 * time.Hour
	)
	never := func(context.Context, *sql.Tx) (reprise.Result, error) { panic("executed") }
	expect := func(t *testing.T, s *shop, in reprise.Intent, work ledger.Work[*sql.Tx], want error) *reprise.Error {
		t.Helper()
		_, err := s.ledger.Do(t.Context(), in, ledger.Options{}, work)
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
		e, _ := errors.AsType[*reprise.Error](err)
		return e
	}

	t.Run("L9: after its retention a key refuses, and names what it made", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		in := intentOf("k", 1)
		expect(t, s, in, s.ordering("tea"), nil)
		s.sql(bodyGone)
		for _, purged := range []int{0, 1} {
			e := expect(t, s, in, never, reprise.ErrKeyExpired)
			if e.Reference != "/orders/1" || e.Outcome != reprise.Unknown {
				t.Errorf("got %+v", e)
			}
			expect(t, s, intentOf("k", 2), never, reprise.ErrKeyReused)
			if n, err := s.ledger.Purge(t.Context()); err != nil || n != 1-purged {
				t.Errorf("purged %d, %v", n, err)
			}
		}
		s.effects(1)
	})

	t.Run("L9: after its tombstone a key without a time is a new intent, purged or not", func(t *testing.T) {
		t.Parallel()
		for _, purge := range []bool{false, true} {
			s := openShop(t, nil)
			in := intentOf("k", 1)
			expect(t, s, in, s.ordering("tea"), nil)
			s.sql(tombstoneGone)
			if purge {
				if n, err := s.ledger.Purge(t.Context()); err != nil || n == 0 {
					t.Fatalf("purged %d, %v", n, err)
				}
			}
			expect(t, s, in, s.ordering("tea"), nil)
			s.effects(2)
		}
	})

	t.Run("L9: purge works in batches, and never touches unfinished work", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, &ledger.Config{PurgeBatch: 3})
		for i := range 10 {
			expect(t, s, intentOf(reprise.Key(fmt.Sprint(i)), 1), s.ordering("tea"), nil)
		}
		st, err := ledger.NewStaged(s.ledger, "pay", func(context.Context, *ledger.Run[*sql.Tx]) error { return errors.New("stopped") })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Do(t.Context(), payment("p", 1), ledger.Options{}, nil); !errors.Is(err, reprise.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		s.sql(tombstoneGone)
		// Each becomes a tombstone, and then nothing.
		if n, err := s.ledger.Purge(t.Context()); err != nil || n != 20 || s.ledger.Stats().Purged != 20 {
			t.Errorf("purged %d, %v", n, err)
		}
		if n := s.count("SELECT count(*) FROM reprise_ledger"); n != 1 {
			t.Errorf("%d records are left, want the one in progress", n)
		}
	})

	t.Run("L9: a UUIDv7 key older than the tombstone is never executed", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		s := openShop(t, &ledger.Config{Now: func() time.Time { return now }})
		for key, want := range map[reprise.Key]error{
			mintedAt(now.Add(-30*day - time.Second)):                                 reprise.ErrKeyExpired,
			reprise.Key(strings.ToUpper(string(mintedAt(now.Add(-365 * 10 * day))))): reprise.ErrKeyExpired,
			mintedAt(now.Add(-30*day + time.Second)):                                 nil,
			mintedAt(now):                                                            nil,
			mintedAt(now.Add(5 * time.Minute)):                                       nil,
			"00000000-0000-4000-8000-000000000000":                                   nil, // A key without a time has no age.
		} {
			work := never
			if want == nil {
				work = s.ordering("tea")
			}
			if e := expect(t, s, intentOf(key, 1), work, want); e != nil && (e.Outcome != reprise.Unknown || e.Reference != "") {
				t.Errorf("%s: got %+v", key, e)
			}
		}
		s.effects(4)
		key := mintedAt(now.Add(-2 * time.Hour))
		_, err := s.ledger.Do(t.Context(), intentOf(key, 1), ledger.Options{Retention: time.Hour, Tombstone: time.Hour}, never)
		if !errors.Is(err, reprise.ErrKeyExpired) {
			t.Errorf("an operation with a shorter tombstone got %v", err)
		}
	})

	t.Run("L9: an old key whose record exists is answered by it", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		s := openShop(t, &ledger.Config{Now: func() time.Time { return now }})
		in := intentOf(mintedAt(now), 1)
		expect(t, s, in, s.ordering("tea"), nil)
		for _, shift := range []time.Duration{31 * day, -31 * day} {
			now = time.Now().Add(shift)
			expect(t, s, in, never, nil)
			in2 := in
			in2.Fingerprint[1] = 9
			expect(t, s, in2, never, reprise.ErrKeyReused)
		}
		now = time.Now().Add(31 * day)
		s.sql(tombstoneGone)
		expect(t, s, in, never, reprise.ErrKeyExpired)
		s.effects(1)
	})

	t.Run("K8: a key minted more than five minutes ahead is invalid, and not executed", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		s := openShop(t, &ledger.Config{Now: func() time.Time { return now }})
		e := expect(t, s, intentOf(mintedAt(now.Add(5*time.Minute+time.Second)), 1), never, reprise.ErrKeyInvalid)
		if e.Outcome != reprise.NotProcessed {
			t.Errorf("got %+v", e)
		}
		s.effects(0)
	})

	t.Run("L9: there is no gap between the end of a tombstone and the age gate", func(t *testing.T) {
		t.Parallel()
		for _, tombstone := range []time.Duration{time.Minute, time.Hour, 10 * day} {
			now := time.Now()
			s := openShop(t, &ledger.Config{Retention: time.Second, Tombstone: tombstone, Now: func() time.Time { return now }})
			// A client whose clock is four minutes ahead, and servers that differ.
			minted := now.Add(4 * time.Minute)
			expect(t, s, intentOf(mintedAt(minted), 1), s.ordering("tea"), nil)
			expect(t, s, intentOf("k", 1), s.ordering("tea"), nil)
			kept := time.Duration(s.count("SELECT tombstone_until - completed_at FROM reprise_ledger WHERE length(key) > 1")) * time.Microsecond
			if gate := minted.Add(tombstone); now.Add(kept).Before(gate.Add(min(5*time.Minute, tombstone) - time.Second)) {
				t.Errorf("%v: kept for %v from now, and the gate closes %v from now", tombstone, kept, gate.Sub(now))
			}
			if plain := time.Duration(s.count("SELECT tombstone_until - completed_at FROM reprise_ledger WHERE length(key) = 1")) * time.Microsecond; plain != tombstone {
				t.Errorf("a key without a time is kept for %v, want %v", plain, tombstone)
			}
		}
	})

	t.Run("L9: a record that outlives its tombstone says no more than that its key is too old", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		s := openShop(t, &ledger.Config{Retention: time.Hour, Tombstone: time.Hour, Now: func() time.Time { return now }})
		key := mintedAt(now)
		expect(t, s, intentOf(key, 1), s.ordering("tea"), nil)
		s.sql("UPDATE reprise_ledger SET expires_at = 1, tombstone_until = tombstone_until - 3600000000 + 60000000")
		now = now.Add(30 * time.Second) // still a tombstone, by a minute less than it is kept
		if e := expect(t, s, intentOf(key, 1), never, reprise.ErrKeyExpired); e.Reference != "/orders/1" {
			t.Errorf("within the tombstone: got %+v", e)
		}
		expect(t, s, intentOf(key, 2), never, reprise.ErrKeyReused)
		now = now.Add(time.Minute)
		for _, body := range []byte{1, 2} {
			if e := expect(t, s, intentOf(key, body), never, reprise.ErrKeyExpired); e.Reference != "" {
				t.Errorf("after the tombstone: got %+v", e)
			}
		}
		s.effects(1)
	})

	t.Run("L15: an old key whose record can't be looked up is not executed", func(t *testing.T) {
		t.Parallel()
		d := &scripted{find: func(context.Context, reprise.Intent) (store.Entry, error) { return store.Entry{}, store.ErrUnavailable }}
		l, err := ledger.New[*scriptedTx](d, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Do(t.Context(), intentOf(mintedAt(time.Now().Add(-31*day)), 1), ledger.Options{},
			func(context.Context, *scriptedTx) (reprise.Result, error) { panic("executed") })
		if !errors.Is(err, reprise.ErrStoreUnavailable) || reprise.OutcomeOf(err) != reprise.NotProcessed {
			t.Errorf("got %v", err)
		}
	})
}
