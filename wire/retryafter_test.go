// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/wire"
)

// noon is when the responses of the vectors are received, unless they say so.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

type retryAfterVector struct {
	Name     string              `json:"name"`
	Received time.Time           `json:"received"`
	Header   map[string][]string `json:"header"`
	// Seconds is a number, null, or "over".
	Seconds jsontext.Value `json:"seconds"`
}

func (v retryAfterVector) received() time.Time {
	if v.Received.IsZero() {
		return noon
	}
	return v.Received
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	rows := vectors[[]retryAfterVector](t, "retry-after.json")
	if len(rows) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, row := range rows {
		t.Run("W3 "+row.Name, func(t *testing.T) {
			t.Parallel()
			wait, ok := wire.RetryAfter(fields(row.Header), row.received())
			switch want := string(row.Seconds); {
			case want == "null":
				if ok || wait != 0 {
					t.Errorf("%v is understood as %v", row.Header, wait)
				}
			case want == `"over"`:
				if !ok || wait < 30*365*24*time.Hour {
					t.Errorf("%v is %v, %v", row.Header, wait, ok)
				}
			case !ok || wait%time.Second != 0 || fmt.Sprint(int64(wait/time.Second)) != want:
				t.Errorf("%v is %v, %v; want %s s", row.Header, wait, ok, want)
			}
		})
	}
}

// TestRetryAfterDates writes one time in the three formats: each is the same
// wait, on any clock, and never an instant too early.
func TestRetryAfterDates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		received := time.Unix(0, rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "received")).UTC()
		at := received.Truncate(time.Second).Add(time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "ahead")) * time.Second)
		want := max(0, at.Sub(received))
		for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
			wait, ok := wire.RetryAfter(http.Header{"Retry-After": {at.Format(layout)}}, received)
			if !ok || wait < want || wait-want >= time.Second || wait%time.Second != 0 {
				t.Fatalf("%s, received at %v, is %v, %v; want %v", at.Format(layout), received, wait, ok, want)
			}
			skewed := http.Header{"Retry-After": {at.Format(layout)}, "Date": {received.Format(http.TimeFormat)}}
			// The client's clock may be years away, but for the two digits of RFC 850.
			skew := time.Duration(rapid.Int64Range(-1e7, 1e7).Draw(t, "skew")) * time.Second
			corrected, ok := wire.RetryAfter(skewed, received.Add(skew))
			if !ok || corrected < want || corrected-want > time.Second {
				t.Fatalf("%v, with a clock wrong by %v, is %v, %v; want %v", skewed, skew, corrected, ok, want)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, row := range vectors[[]retryAfterVector](f, "retry-after.json") {
		h := fields(row.Header)
		f.Add(h.Get("Retry-After"), h.Get("Date"), h.Get("RateLimit"), row.received().UnixNano())
	}
	f.Fuzz(func(t *testing.T, retryAfter, date, rateLimit string, received int64) {
		h := http.Header{"Retry-After": {retryAfter}, "Date": {date}, "Ratelimit": {rateLimit}}
		now := time.Unix(0, received).UTC()
		wait, ok := wire.RetryAfter(h, now)
		if wait < 0 || !ok && wait != 0 || wait%time.Second != 0 && wait != math.MaxInt64 {
			t.Fatalf("%v is %v, %v", h, wait, ok)
		}
		// One more line never shortens the wait.
		h.Add("Retry-After", "5")
		more, ok2 := wire.RetryAfter(h, now)
		_, read := wire.RetryAfter(http.Header{"Retry-After": {retryAfter}, "Date": {date}}, now)
		if !ok2 || more < 5*time.Second || read && more < wait {
			t.Fatalf("%v is %v, %v; with one line less it was %v", h, more, ok2, wait)
		}
		// net/http forgives more dates than we do, and never reads one otherwise,
		// but for years of two digits.
		if theirs, err := http.ParseTime(retryAfter); read && err == nil && date == "" && len(retryAfter) == len(http.TimeFormat) {
			if ours, want := now.Add(wait), theirs; wait < math.MaxInt64 && want.After(now) && ours.Sub(want).Abs() >= time.Second {
				t.Fatalf("%q is %v, and %v for net/http", retryAfter, ours, want)
			}
		}
	})
}

func ExampleRetryAfter() {
	received := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	h := http.Header{}
	h.Set("Date", "Sun, 29 Nov 2026 12:05:00 GMT") // The server's clock is ahead.
	h.Set("Retry-After", "Sun, 29 Nov 2026 12:05:10 GMT")
	fmt.Println(wire.RetryAfter(h, received))
	// Output: 10s true
}
