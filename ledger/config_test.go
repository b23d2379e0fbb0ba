// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

func TestNew(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour

	t.Run("a configuration that can be kept is taken", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]*ledger.Config{
			"nil":                           nil,
			"zero":                          {},
			"equal lifetimes":               {Retention: time.Second, Tombstone: time.Second},
			"a retention beyond 30 days":    {Retention: 90 * day},
			"a client that stops in time":   {Tombstone: 2 * day, ClientDeadline: day},
			"more fields of its own answer": {Headers: []string{"x-request-cost", "Cache-Control"}},
		} {
			if _, err := ledger.New[*scriptedTx](&scripted{}, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("a configuration that can't be kept is refused, with what to change", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			rule   string
			config ledger.Config
			says   string
		}{
			{"L9: a tombstone ends before its result", ledger.Config{Retention: 2 * day, Tombstone: day}, "at least Retention"},
			{"L9: a tombstone ends before the default result", ledger.Config{Tombstone: time.Hour}, "at least Retention"},
			{"L9: dedup ends before the client stops", ledger.Config{Retention: time.Hour, Tombstone: time.Hour, ClientDeadline: time.Hour}, "set Tombstone to at least 1h5m"},
			{"L5: a session is replayed", ledger.Config{Headers: []string{"set-cookie"}}, "must not be replayed"},
			{"L5: a challenge is replayed", ledger.Config{Headers: []string{"WWW-Authenticate"}}, "must not be replayed"},
			{"L5: a quota is replayed", ledger.Config{Headers: []string{"RateLimit-Remaining"}}, "must not be replayed"},
			{"L5: an older quota is replayed", ledger.Config{Headers: []string{"X-RateLimit-Reset"}}, "must not be replayed"},
			{"L5: framing is replayed", ledger.Config{Headers: []string{"Transfer-Encoding"}}, "must not be replayed"},
			{"a field name is none", ledger.Config{Headers: []string{"Not A Name"}}, "not the name of a header field"},
			{"a duration is negative", ledger.Config{Wait: -1}, "Config.Wait"},
			{"a count is negative", ledger.Config{MaxBody: -1}, "Config.MaxBody"},
			{"a lease can't be renewed in time", ledger.Config{Lease: time.Millisecond}, "Config.Lease"},
			{"a result outlives its erasure", ledger.Config{CacheFor: time.Hour}, "Config.CacheFor"},
			{"a lifetime overflows", ledger.Config{Tombstone: 1<<63 - 1}, "longer than the longest"},
		} {
			_, err := ledger.New[*scriptedTx](&scripted{}, &c.config)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want an error that says %q", c.rule, err, c.says)
			}
		}
		if _, err := ledger.New[*scriptedTx](nil, nil); err == nil {
			t.Error("no driver: got no error")
		}
	})

	t.Run("an operation may not forget its keys before the clients stop either", func(t *testing.T) {
		t.Parallel()
		l, err := ledger.New[*scriptedTx](&scripted{}, &ledger.Config{Tombstone: 90 * day, ClientDeadline: 60 * day})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Check(ledger.Options{Tombstone: 30 * day}); err == nil || !strings.Contains(err.Error(), "set Tombstone to at least 1440h5m") {
			t.Errorf("a tombstone of 30 days: got %v", err)
		}
		for _, o := range []ledger.Options{{}, {Tombstone: 61 * day}} {
			if err := l.Check(o); err != nil {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})

	t.Run("options that can't be kept fail before the store is asked", func(t *testing.T) {
		t.Parallel()
		l, err := ledger.New[*scriptedTx](&scripted{}, nil) // Every call of this driver panics.
		if err != nil {
			t.Fatal(err)
		}
		work := func(context.Context, *scriptedTx) (reprise.Result, error) { panic("executed") }
		for _, o := range []ledger.Options{
			{Wait: -1}, {Retention: -1}, {Retention: day, Tombstone: time.Hour}, {Tombstone: time.Hour},
		} {
			_, err := l.Do(t.Context(), intentOf("k", 1), o, work)
			if reprise.CodeOf(err) != reprise.CodeInternal || reprise.OutcomeOf(err) != reprise.NotProcessed {
				t.Errorf("%+v: got %v", o, err)
			}
		}
	})

	t.Run("an intent that is none fails before the store is asked", func(t *testing.T) {
		t.Parallel()
		l, err := ledger.New[*scriptedTx](&scripted{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		work := func(context.Context, *scriptedTx) (reprise.Result, error) { panic("executed") }
		for code, change := range map[reprise.Code]func(*reprise.Intent){
			reprise.CodeKeyMissing: func(i *reprise.Intent) { i.Key = "" },
			reprise.CodeKeyInvalid: func(i *reprise.Intent) { i.Key = "a\nb" },
			reprise.CodeInternal:   func(i *reprise.Intent) { i.Caller = "" },
		} {
			in := intentOf("k", 1)
			change(&in)
			_, err := l.Do(t.Context(), in, ledger.Options{}, work)
			if reprise.CodeOf(err) != code || reprise.OutcomeOf(err) != reprise.NotProcessed {
				t.Errorf("got %v, want %s, not processed", err, code)
			}
		}
	})
}
