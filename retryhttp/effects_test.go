// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// world is a server and the network before it, in memory, that does anything
// they may do to one intent, and counts the effects.
type world struct {
	t        *rapid.T
	ledger   bool
	effects  int
	requests int
	done     map[string]bool // The keys in the ledger.
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GetConn("shop:80")
	if rapid.IntRange(0, 5).Draw(w.t, "dial") == 0 {
		return nil, syscall.ECONNREFUSED
	}
	trace.GotConn(httptrace.GotConnInfo{})
	trace.WroteHeaders()
	if r.Body != nil {
		content, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(content) != "order" {
			w.t.Fatalf("content %q, %v", content, err)
		}
	}
	w.requests++
	time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(w.t, "latency ms")) * time.Millisecond)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.serve(r)
}

func (w *world) serve(r *http.Request) (*http.Response, error) {
	key := r.Header.Get("Idempotency-Key")
	known := w.ledger && w.done[key]
	switch rapid.SampledFrom([]string{"lost before", "busy", "refused", "in progress", "turned away", "work"}).Draw(w.t, "server") {
	case "lost before":
		return nil, syscall.ECONNRESET
	case "busy":
		return say(r, 503, "", untouched, "Retry-After: 1"), nil
	case "refused":
		return say(r, 429, ""), nil
	case "in progress":
		if w.ledger {
			return say(r, 409, `{"code":"in-progress"}`, "Content-Type: application/problem+json"), nil
		}
	case "turned away":
		if !known {
			return say(r, 403, ""), nil
		}
	}
	var marks []string
	if w.ledger {
		marks = append(marks, "Idempotency-Expires: Sat, 01 Jan 2028 00:00:00 GMT")
	}
	if known {
		marks = append(marks, "Idempotent-Replayed: true")
	} else {
		w.effects++
		w.done[key] = true
	}
	switch rapid.SampledFrom([]string{"answered", "lost", "cut off", "gateway"}).Draw(w.t, "network") {
	case "lost":
		return nil, io.EOF
	case "cut off":
		resp := say(r, 201, "", marks...)
		resp.Body, resp.ContentLength = io.NopCloser(io.MultiReader(failing{io.ErrUnexpectedEOF})), 10
		return resp, nil
	case "gateway":
		return say(r, 504, ""), nil
	default:
		return say(r, 201, "created", marks...), nil
	}
}

// TestEffects lets anything happen and holds what the client says against what
// the server did: success was an effect, a definite refusal none, and no intent
// had two.
func TestEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outcomes := map[reprise.Outcome]int{}
		rapid.Check(bubble{t}, func(t *rapid.T) {
			w := &world{t: t, ledger: rapid.Bool().Draw(t, "ledger"), done: map[string]bool{}}
			o := retry.Options{
				MaxAttempts: rapid.IntRange(1, 6).Draw(t, "max"), Base: 10 * time.Millisecond,
				Deadline: 20 * time.Second, AttemptTimeout: 2 * time.Second,
			}
			p, err := retry.New(&o)
			if err != nil {
				t.Fatal(err)
			}
			rt := &retryhttp.Transport{Base: w, Policy: p, Ledger: w.ledger}
			r := must(http.NewRequestWithContext(context.Background(), "POST", "http://shop/orders", strings.NewReader("order")))
			if !w.ledger && rapid.Bool().Draw(t, "key that nobody remembers") {
				r.Header.Set("Idempotency-Key", "k")
			}
			start := time.Now()
			resp, err := rt.RoundTrip(r)

			outcome := reprise.OutcomeOf(err)
			var attempts []reprise.Attempt
			if err == nil {
				attempts = retryhttp.Attempts(resp)
				if e := retryhttp.ErrorOf(resp); e != nil {
					outcome = e.Outcome
				}
				if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode == 201 && string(b) != "created" {
					t.Fatalf("half an answer was handed over: %q, %v", b, err)
				}
			} else if e, ok := errors.AsType[*retry.Error](err); ok {
				attempts = e.Attempts
			} else {
				t.Fatalf("%v is no *retry.Error", err)
			}
			outcomes[outcome]++

			sends := 0
			for _, a := range attempts {
				sends += a.Sends
			}
			switch {
			case w.effects > 1:
				t.Fatalf("%d effects of one intent", w.effects)
			case outcome == reprise.Succeeded && w.effects != 1:
				t.Fatal("a success without an effect")
			case (outcome == reprise.Rejected || outcome == reprise.NotProcessed) && w.effects != 0:
				t.Fatalf("the call is %v, and had an effect", outcome)
			case sends != w.requests:
				t.Fatalf("%d requests arrived, the records tell of %d", w.requests, sends)
			case time.Since(start) > o.Deadline:
				t.Fatalf("it took %v", time.Since(start))
			}
		})
		for _, o := range []reprise.Outcome{reprise.Unknown, reprise.Succeeded, reprise.Rejected, reprise.NotProcessed} {
			if outcomes[o] == 0 {
				t.Errorf("no call was %v: the world is too small", o)
			}
		}
	})
}

// bubble keeps rapid from asking for the test's deadline, which is on another
// clock.
type bubble struct{ *testing.T }

func (bubble) Deadline() (time.Time, bool) { return time.Time{}, false }
