// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// say makes an answer for a Base in memory.
func say(r *http.Request, status int, body string, fields ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		resp.Header.Add(name, value)
	}
	return resp
}

// TestTime is about waiting, on a clock of its own.
func TestTime(t *testing.T) {
	t.Parallel()
	const s = time.Second
	zero := func() float64 { return 0 }

	// What is known to be sent (TIME-07), as it looks from the client. The wait
	// is the least one: without the random part.
	t.Run("C6 what Retry-After means", func(t *testing.T) {
		t.Parallel()
		const date = http.TimeFormat
		for _, row := range []struct {
			name   string
			fields func(now time.Time) []string
			wait   time.Duration // -1: gives up at once.
		}{
			{"120", func(time.Time) []string { return []string{"Retry-After: 120"} }, 120 * s},
			{"0", func(time.Time) []string { return []string{"Retry-After: 0"} }, 0},
			{"-5", func(time.Time) []string { return []string{"Retry-After: -5"} }, 0},
			{"+5", func(time.Time) []string { return []string{"Retry-After: +5"} }, 0},
			{"1.5", func(time.Time) []string { return []string{"Retry-After: 1.5"} }, 0},
			{"junk", func(time.Time) []string { return []string{"Retry-After: soon"} }, 0},
			{"an hour", func(time.Time) []string { return []string{"Retry-After: 3600"} }, -1},
			{"9223372037", func(time.Time) []string { return []string{"Retry-After: 9223372037"} }, -1},
			{"99999999999999999999", func(time.Time) []string { return []string{"Retry-After: 99999999999999999999"} }, -1},
			{"IMF-fixdate", func(n time.Time) []string { return []string{"Retry-After: " + n.Add(10*s).Format(date)} }, 10 * s},
			{"RFC 850", func(n time.Time) []string {
				return []string{"Retry-After: " + n.Add(10*s).Format("Monday, 02-Jan-06 15:04:05 GMT")}
			}, 10 * s},
			{"asctime", func(n time.Time) []string { return []string{"Retry-After: " + n.Add(10*s).Format(time.ANSIC)} }, 10 * s},
			{"the past", func(n time.Time) []string { return []string{"Retry-After: " + n.Add(-time.Hour).Format(date)} }, 0},
			{"a clock that is ahead", func(n time.Time) []string {
				n = n.Add(5 * time.Minute)
				return []string{"Date: " + n.Format(date), "Retry-After: " + n.Add(10*s).Format(date)}
			}, 10 * s},
			{"a clock that is behind", func(n time.Time) []string {
				n = n.Add(-5 * time.Minute)
				return []string{"Date: " + n.Format(date), "Retry-After: " + n.Add(10*s).Format(date)}
			}, 10 * s},
			{"twice", func(time.Time) []string { return []string{"Retry-After: 3", "Retry-After: 7"} }, 7 * s},
			{"an exhausted quota", func(time.Time) []string { return []string{`RateLimit: "d";r=0;t=7`} }, 7 * s},
			{"nothing", func(time.Time) []string { return nil }, 0},
		} {
			for _, status := range []int{429, 503} {
				synctest.Test(t, func(t *testing.T) {
					calls := 0
					rt := &retryhttp.Transport{
						Policy: policy(t, retry.Options{Rand: zero, MaxWait: 10 * time.Minute, Deadline: 10 * time.Minute}),
						Base: roundTrip(func(r *http.Request) (*http.Response, error) {
							if calls++; calls == 1 {
								return say(r, status, "busy", row.fields(time.Now().UTC())...), nil
							}
							return say(r, 200, "ok"), nil
						}),
					}
					start := time.Now()
					resp, e := give(t, &http.Client{Transport: rt}, request(t, "GET", "http://shop/", ""))
					took := time.Since(start)
					if row.wait >= 0 && (e != nil || calls != 2 || took != row.wait) {
						t.Errorf("%s, %d: %v after %v and %d calls, want a wait of %v", row.name, status, e, took, calls, row.wait)
					}
					if row.wait < 0 && (calls != 1 || took != 0 || e == nil || !e.RetryAt.After(start) || read(t, resp) != "busy") {
						t.Errorf("%s, %d: %v after %v and %d calls, want to stop at once", row.name, status, e, took, calls)
					}
				})
			}
		}
	})

	t.Run("C5 TIME-06 a wait beyond the deadline gives the answer back at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			rt := &retryhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				return say(r, 503, "down for an hour", "Retry-After: 3600", untouched), nil
			})}
			ctx, cancel := context.WithTimeout(t.Context(), 2*s)
			defer cancel()
			start := time.Now()
			resp, e := give(t, &http.Client{Transport: rt}, request(t, "POST", "http://shop/", "x").WithContext(ctx))
			if took := time.Since(start); took != 0 {
				t.Errorf("it took %v", took)
			}
			if resp == nil || resp.StatusCode != 503 || read(t, resp) != "down for an hour" {
				t.Fatalf("the answer is lost: %+v", resp)
			}
			if e.Outcome != reprise.NotProcessed || !e.RetryAt.Equal(start.Add(time.Hour)) || !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("%+v", e)
			}
		})
	})

	t.Run("C7 an attempt in progress is waited for under the same key", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var keys []string
			rt := &retryhttp.Transport{
				Policy: policy(t, retry.Options{MaxAttempts: 2, Rand: zero, Deadline: time.Minute, Base: 100 * time.Millisecond}),
				Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					keys = append(keys, r.Header.Get("Idempotency-Key"))
					switch len(keys) {
					case 1, 2, 3, 4, 5:
						return say(r, 409, `{"code":"in-progress"}`, "Content-Type: application/problem+json", "Retry-After: 2"), nil
					case 6:
						return nil, io.ErrUnexpectedEOF // Its ledger is known by now.
					default:
						return say(r, 201, "done", "Idempotent-Replayed: true"), nil
					}
				}),
			}
			start := time.Now()
			resp, e := give(t, &http.Client{Transport: rt}, request(t, "POST", "http://shop/", "x", "Idempotency-Key: k"))
			if e != nil || read(t, resp) != "done" {
				t.Fatal(e)
			}
			a := retryhttp.Attempts(resp)
			if len(keys) != 7 || slices.ContainsFunc(keys, func(k string) bool { return k != "k" }) || time.Since(start) != 10*s {
				t.Errorf("keys %q in %v", keys, time.Since(start))
			}
			if a[1].Trigger != "in-progress" || a[1].Wait != 2*s || a[0].Outcome != reprise.Unknown {
				t.Errorf("%+v", a[:2])
			}
		})
	})

	t.Run("C7 one in progress until the deadline is unknown", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			rt := &retryhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				calls++
				return say(r, 409, `{"code":"in-progress"}`, "Content-Type: application/problem+json"), nil
			})}
			start := time.Now()
			resp, e := give(t, &http.Client{Transport: rt}, request(t, "POST", "http://shop/", "x", "Idempotency-Key: k"))
			took := time.Since(start)
			if resp == nil || e == nil || e.Reason != retry.ReasonDeadline || !errors.Is(e, reprise.ErrOutcomeUnknown) || !errors.Is(e, reprise.ErrInProgress) {
				t.Fatalf("%v", e)
			}
			if calls < 5 || calls > 200 || took < 9*s || took > 10*s {
				t.Errorf("%d calls in %v", calls, took)
			}
		})
	})

	// hashicorp/go-retryablehttp#46, CLI-04: the last answer survives a wait that is cut short.
	t.Run("cancelling a wait gives the last answer as an error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			rt := &retryhttp.Transport{Policy: retry.Background(), Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				return say(r, 503, "come back", "Retry-After: 60", "X-Request-Id: 7"), nil
			})}
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("the shop closes")
			time.AfterFunc(5*s, func() { cancel(why) })
			start := time.Now()
			_, e := give(t, &http.Client{Transport: rt}, request(t, "GET", "http://shop/", "").WithContext(ctx))
			answer, ok := errors.AsType[*retryhttp.StatusError](e)
			if !ok || answer.Status != 503 || string(answer.Body) != "come back" || answer.Header.Get("X-Request-Id") != "7" {
				t.Errorf("the answer is lost: %v", e)
			}
			if time.Since(start) != 5*s || !errors.Is(e, context.Canceled) || !errors.Is(e, why) || e.Reason != retry.ReasonCancelled {
				t.Errorf("%v after %v", e, time.Since(start))
			}
		})
	})

	// kubernetes/kubernetes#117313: a time-out that was sent to the server stayed the same.
	t.Run("each attempt knows its own time left", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var left []time.Duration
			rt := &retryhttp.Transport{
				Policy: policy(t, retry.Options{Deadline: 10 * s, AttemptTimeout: 4 * s}),
				Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					d, _ := r.Context().Deadline()
					left = append(left, time.Until(d).Round(s))
					<-r.Context().Done()
					return nil, r.Context().Err()
				}),
			}
			_, e := give(t, &http.Client{Transport: rt}, request(t, "PUT", "http://shop/", "x"))
			if !slices.Equal(left, []time.Duration{4 * s, 4 * s, 2 * s}) || e.Reason != retry.ReasonDeadline || e.Outcome != reprise.Unknown {
				t.Errorf("time left %v, %v", left, e)
			}
			if errors.Is(e, context.Canceled) {
				t.Error("a time-out looks like a cancellation")
			}
		})
	})

	t.Run("the client's own Timeout is the call's deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			rt := &retryhttp.Transport{Policy: retry.Background(), Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				calls++
				return say(r, 503, "", "Retry-After: 3"), nil
			})}
			start := time.Now()
			resp, e := give(t, &http.Client{Transport: rt, Timeout: 3 * s}, request(t, "GET", "http://shop/", ""))
			if resp == nil {
				t.Fatal(e)
			}
			resp.Body.Close()
			if calls != 1 || time.Since(start) != 0 || e.Reason != retry.ReasonDeadline {
				t.Errorf("%d calls in %v: %v", calls, time.Since(start), e)
			}
		})
	})
}

// TestHerd is CLI-06: clients that were turned away together must not come back
// together.
func TestHerd(t *testing.T) {
	t.Parallel()
	const clients = 2000
	for name, fields := range map[string][]string{"Retry-After": {"Retry-After: 1"}, "no Retry-After": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				perBucket := map[time.Duration]int{}
				p, err := retry.New(&retry.Options{Base: 500 * time.Millisecond, Deadline: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				rt := &retryhttp.Transport{Policy: p, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					since := time.Since(start)
					if since == 0 {
						return say(r, 503, "", fields...), nil
					}
					mu.Lock()
					perBucket[since.Truncate(50*time.Millisecond)]++
					mu.Unlock()
					return say(r, 200, ""), nil
				})}
				var wg sync.WaitGroup
				for range clients {
					wg.Go(func() {
						resp, err := rt.RoundTrip(request(t, "GET", "http://shop/", ""))
						if err != nil || resp.StatusCode != 200 {
							t.Errorf("%v", err)
						}
					})
				}
				wg.Wait()
				total, peak := 0, 0
				for at, n := range perBucket {
					total, peak = total+n, max(peak, n)
					if fields != nil && at < time.Second {
						t.Errorf("%d came back after %v, before they were asked to", n, at)
					}
				}
				// An even spread over the window of jitter would be 100 (over 1 s) or 200
				// (over 0.5 s) in each bucket.
				even := clients * 50 / 1000
				if fields == nil {
					even *= 2
				}
				if total != clients || float64(peak) > 1.5*float64(even) {
					t.Errorf("%d came back, at most %d within 50 ms; an even spread is %d", total, peak, even)
				}
			})
		})
	}
}
