// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Numbers from epochFrom on are not believed to be seconds to wait, which would
// be 31 years: servers send points in time by mistake, in Unix seconds. Such a
// number is read as one if that lies within epochAhead from now; otherwise it
// stands for a wait that is over everybody's limit.
const (
	epochFrom  = 1_000_000_000
	epochAhead = 366 * 24 * time.Hour
)

// RetryAfter returns how long a response asks its receiver to wait, counted from
// received, when its header was read (rule W3). It is a whole number of seconds,
// rounded up, never negative, and saturates at the longest Duration. ok is false
// when the response asks for nothing that can be understood.
//
// Retry-After is read in both forms of RFC 9110 section 10.2.3: delay-seconds,
// ASCII digits only, and an HTTP-date in any of the three formats of section
// 5.6.7, with a weekday that fits. A date is taken relative to the response's
// own Date, so that a wrong clock on either side does no harm, unless there is
// an Age, which means that a cache has kept the response. When the field is
// given several times, the longest wait counts. Without a valid Retry-After, an
// exhausted quota in the RateLimit field is waited for.
func RetryAfter(h http.Header, received time.Time) (wait time.Duration, ok bool) {
	now := received
	if len(h["Age"]) == 0 {
		if date, ok := httpDate(h.Get("Date"), received); ok {
			now = date
		}
	}
	for _, line := range h["Retry-After"] {
		if d, valid := retryAfter(strings.Trim(line, " \t"), now, received); valid {
			wait, ok = max(wait, d), true
		}
	}
	if !ok {
		return rateLimit(h["Ratelimit"])
	}
	return wait, true
}

func retryAfter(s string, now, received time.Time) (time.Duration, bool) {
	if n, ok := delaySeconds(s); ok {
		if d := time.Unix(n, 0).Sub(now); n >= epochFrom && d > 0 && d <= epochAhead {
			return ceilSeconds(d), true
		}
		return seconds(n), true
	}
	t, ok := httpDate(s, received)
	if !ok {
		return 0, false
	}
	return ceilSeconds(t.Sub(now)), true // RetryAfter makes it 0 if it has passed.
}

// delaySeconds reads 1*DIGIT, and saturates.
func delaySeconds(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil { // Only the range can be wrong now.
		return math.MaxInt64, true
	}
	return n, true
}

// seconds converts, and saturates.
func seconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// ceilSeconds rounds up to whole seconds, so that nobody comes too early.
func ceilSeconds(d time.Duration) time.Duration {
	if r := d % time.Second; r > 0 && d <= math.MaxInt64-time.Second {
		return d - r + time.Second
	}
	return d
}

// rateLimit reads the RateLimit field of draft-ietf-httpapi-ratelimit-headers,
// such as `"default";r=0;t=7`: the longest time to the reset of a quota with
// nothing remaining. Malformed fields are ignored, as the draft demands.
func rateLimit(lines []string) (wait time.Duration, ok bool) {
	if len(lines) == 0 {
		return 0, false
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return 0, false
	}
	for _, member := range list {
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			continue
		}
		r, _ := item.Params.Get("r")
		t, _ := item.Params.Get("t")
		remaining, isInt := r.(int64)
		reset, isInt2 := t.(int64)
		if isInt && isInt2 && remaining == 0 && reset >= 0 {
			wait, ok = max(wait, seconds(reset)), true
		}
	}
	return wait, ok
}
