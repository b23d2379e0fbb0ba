// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"
	"time"
)

// httpDate parses the three formats of RFC 9110 section 5.6.7. Unlike
// http.ParseTime it is case-sensitive, checks the weekday, knows leap seconds,
// and reads a year of two digits by the rule of that section: not more than 50
// years after now.
func httpDate(s string, now time.Time) (time.Time, bool) {
	s, leap := cutLeapSecond(s)
	t, ok := parseExactly(http1123, s)
	if !ok {
		t, ok = parseExactly(time.ANSIC, s)
	}
	if !ok {
		t, ok = parseRFC850(s, now)
	}
	if !ok {
		return time.Time{}, false
	}
	return t.Add(leap), true
}

// http1123 is http.TimeFormat, whose zone is the three letters GMT.
const http1123 = "Mon, 02 Jan 2006 15:04:05 GMT"

// cutLeapSecond turns second 60, which package time cannot parse, into 59 and
// the second that is left.
func cutLeapSecond(s string) (string, time.Duration) {
	// In each format the time of day is the only part with two colons.
	i := strings.LastIndexByte(s, ':')
	if i < 3 || s[i-3] != ':' || !strings.HasPrefix(s[i:], ":60") {
		return s, 0
	}
	return s[:i] + ":59" + s[i+3:], time.Second
}

// parseExactly parses s and demands that formatting gives s again, because
// time.Parse forgives other cases, a wrong weekday and missing zeros.
func parseExactly(layout, s string) (time.Time, bool) {
	t, err := time.Parse(layout, s)
	return t, err == nil && t.Format(layout) == s
}

// parseRFC850 parses the obsolete format, such as "Sunday, 06-Nov-94 08:49:37
// GMT". A time that seems to be more than 50 years ahead means the last year
// that ended in the same two digits.
func parseRFC850(s string, now time.Time) (time.Time, bool) {
	weekday, rest, ok := strings.Cut(s, ", ")
	if !ok || len(rest) != len("06-Nov-94 08:49:37 GMT") {
		return time.Time{}, false
	}
	yy, err := strconv.ParseUint(rest[7:9], 10, 8)
	if err != nil {
		return time.Time{}, false
	}
	century := now.Year() / 100 * 100
	for _, c := range []int{century + 100, century, century - 100} {
		year := strconv.Itoa(c + int(yy))
		t, ok := parseExactly("02-Jan-2006 15:04:05 GMT", rest[:7]+year+rest[9:])
		// Not every century has this day: 29-Feb-00 is not in 2100.
		if ok && !t.After(now.AddDate(50, 0, 0)) {
			return t, t.Weekday().String() == weekday
		}
	}
	return time.Time{}, false
}
