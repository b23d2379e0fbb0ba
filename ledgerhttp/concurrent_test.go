// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// together sends all calls at the same moment and returns their answers in the
// order of the calls.
func (s *shop) together(calls []call) []answer {
	s.t.Helper()
	answers := make([]answer, len(calls))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			<-start
			a, err := s.try(c)
			if err != nil {
				s.t.Error(err)
			}
			answers[i] = a
		})
	}
	close(start)
	wg.Wait()
	return answers
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	const many = 64

	t.Run("L1 64 equal requests have one effect and 64 equal answers", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.wait = time.Minute })
		calls := make([]call, many)
		key := newKey()
		for i := range calls {
			calls[i] = post(key, orderBody)
		}
		answers := s.together(calls)
		made := 0
		for _, a := range answers {
			a.want(t, 201, "")
			a.wantSame(t, answers[0])
			if a.header.Get(wire.HeaderReplayed) == "" {
				made++
			}
		}
		if made != 1 {
			t.Errorf("%d answers claim to be the first, want 1", made)
		}
		s.wantRows("r", 1)
		if n := s.runs.Load(); n != 1 {
			t.Errorf("work ran %d times, want 1", n)
		}
	})
	t.Run("L6 64 requests with two bodies have one effect, and the other body is refused", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.wait = time.Minute })
		calls := make([]call, many)
		key := newKey()
		for i := range calls {
			calls[i] = post(key, fmt.Sprintf(`{"ref":"body-%d","amount":1}`, i%2))
		}
		answers := s.together(calls)
		winner := 0
		if answers[1].status == 201 {
			winner = 1
		}
		for i, a := range answers {
			if i%2 == winner {
				a.want(t, 201, "")
				a.wantSame(t, answers[winner])
			} else {
				a.want(t, 422, reprise.CodeKeyReused)
			}
		}
		s.wantRows(fmt.Sprintf("body-%d", winner), 1)
		s.wantRows(fmt.Sprintf("body-%d", 1-winner), 0)
	})
	t.Run("CONC-04 64 equal requests to two processes have one effect", func(t *testing.T) {
		t.Parallel()
		patient := func(o *options) { o.wait = time.Minute }
		s := setup(t, patient)
		other := s.sibling(patient)
		key := newKey()
		answers := make(chan answer, many)
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				a, err := []*shop{s, other}[i%2].try(post(key, orderBody))
				if err != nil {
					t.Error(err)
				}
				answers <- a
			})
		}
		wg.Wait()
		first := <-answers
		first.want(t, 201, "")
		for range many - 1 {
			(<-answers).wantSame(t, first)
		}
		if s.arrived.Load() != many/2 || other.arrived.Load() != many/2 {
			t.Fatalf("%d and %d requests arrived", s.arrived.Load(), other.arrived.Load())
		}
		s.wantRows("r", 1)
	})
	t.Run("64 requests of 8 intents have 8 effects", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.wait = time.Minute })
		calls := make([]call, many)
		for i := range calls {
			calls[i] = post(fmt.Sprintf("key-%d", i%8), fmt.Sprintf(`{"ref":"r%d","amount":1}`, i%8))
		}
		for i, a := range s.together(calls) {
			a.want(t, 201, "")
			if i >= 8 {
				continue
			}
			s.wantRows(fmt.Sprintf("r%d", i), 1)
		}
	})
	t.Run("R8 of many writers with one If-Match exactly one wins", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		created := s.send(post(newKey(), orderBody))
		calls := make([]call, 16)
		for i := range calls {
			// Half of them with a key of their own: a key is no concurrency control.
			key := ""
			if i%2 == 0 {
				key = newKey()
			}
			calls[i] = post(key, fmt.Sprintf(`{"ref":"r","amount":%d}`, 2000+i)).via("PUT").to("/orders/1").
				with("If-Match", created.header.Get("Etag"))
		}
		won := -1
		for i, a := range s.together(calls) {
			switch {
			case a.status == http.StatusOK && won < 0:
				won = i
			case a.status == http.StatusOK:
				t.Errorf("both %d and %d won", won, i)
			default:
				a.want(t, 412, reprise.CodePreconditionFailed)
			}
		}
		if won < 0 {
			t.Fatal("nobody won")
		}
		read := s.send(call{method: "GET", path: "/orders/1", caller: "ann"})
		read.want(t, 200, "")
		if want := fmt.Sprintf(`{"amount":%d}`, 2000+won); read.body != want || read.header.Get("Etag") != `"2"` {
			t.Errorf("got %s %s, want %s \"2\"", read.body, read.header.Get("Etag"), want)
		}
	})
}
