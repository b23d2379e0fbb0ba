// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
)

// instant is a driver that keeps nothing and takes no time, so that what is
// measured is the ledger's own.
type instant struct {
	store.Driver[struct{}]
	found *store.Entry
}

func (d instant) Execute(ctx context.Context, c store.Claim,
	work func(context.Context, struct{}) (store.Completion, error),
) (store.Entry, bool, error) {
	if d.found != nil {
		e := *d.found
		e.Intent = c.Intent
		return e, false, nil
	}
	done, err := work(ctx, struct{}{})
	return store.Entry{Intent: c.Intent, State: reprise.StateCompleted, Token: c.Token, Result: done.Result}, err == nil, err
}

func benchmarkDo(b *testing.B, d instant) {
	b.Helper()
	l, err := ledger.New(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	result := reprise.Result{
		Status: 201, Reference: "/orders/ord_1",
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/orders/ord_1"}},
		Body:   make([]byte, 200),
	}
	in := reprise.Intent{
		Caller: "bench", Operation: "create-order", Key: reprise.NewKey(),
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion},
	}
	b.ReportAllocs()
	for b.Loop() {
		a, err := l.Do(b.Context(), in, ledger.Options{}, func(context.Context, struct{}) (reprise.Result, error) {
			return result, nil
		})
		if err != nil || a.Replayed != (d.found != nil) {
			b.Fatal(a, err)
		}
	}
}

// BenchmarkDo executes an intent.
func BenchmarkDo(b *testing.B) { benchmarkDo(b, instant{}) }

// BenchmarkDoReplay answers from a record.
func BenchmarkDoReplay(b *testing.B) {
	benchmarkDo(b, instant{found: &store.Entry{
		State: reprise.StateCompleted, CompletedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
		TombstoneUntil: time.Now().Add(2 * time.Hour),
		Result:         reprise.Result{Status: 201, Body: make([]byte, 200)},
	}})
}
