// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
)

// MaxLayerLen is the longest name of a layer in a RetryContext, in bytes.
const MaxLayerLen = 64

// RetryContext tells the other side about retries (rule W4): a structured
// dictionary such as `attempt=2, max=4, layer="checkout"` in a request, and
// `processed=?0` or `retry=?0` in a response. It is advice: nothing that it says
// may decide whether an effect happens.
type RetryContext struct {
	// Attempt is the number of this attempt, from 1. 0 says nothing.
	Attempt int
	// Max is how many attempts the caller makes at most. 0 says nothing.
	Max int
	// Layer names the hop that owns the retries of this call, in at most
	// MaxLayerLen bytes of printable ASCII. A server below it that is called with
	// a layer leaves retrying to that layer.
	Layer string
	// Processed, when it points to false, proves that the server did not act on
	// the request. It speaks of one hop only and must not travel further up.
	Processed *bool
	// Retry, when it points to false, says that trying again is of no use. It
	// travels up.
	Retry *bool
}

// ReadRetryContext reads the field. A field that is not a structured dictionary,
// or in which a known member has another type or is out of range, is read as the
// zero value as a whole (RFC 9651 section 4.2); unknown members and all
// parameters are ignored.
func ReadRetryContext(h http.Header) RetryContext {
	lines := h[HeaderRetryContext]
	if len(lines) == 0 {
		return RetryContext{}
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return RetryContext{}
	}
	var c RetryContext
	ok := readCount(dict, "attempt", &c.Attempt) &&
		readCount(dict, "max", &c.Max) &&
		readLayer(dict, &c.Layer) &&
		readFlag(dict, "processed", &c.Processed) &&
		readFlag(dict, "retry", &c.Retry)
	if !ok {
		return RetryContext{}
	}
	return c
}

// value returns the bare value of a member: nil when it is absent, and the
// member itself, which is no bare value, when it is an inner list.
func value(dict *httpsfv.Dictionary, name string) any {
	m, ok := dict.Get(name)
	if !ok {
		return nil
	}
	if item, ok := m.(httpsfv.Item); ok {
		return item.Value
	}
	return m
}

func readCount(dict *httpsfv.Dictionary, name string, to *int) bool {
	switch v := value(dict, name).(type) {
	case nil:
		return true
	case int64:
		if v < 1 || v > math.MaxInt32 {
			return false
		}
		*to = int(v)
		return true
	default:
		return false
	}
}

func readLayer(dict *httpsfv.Dictionary, to *string) bool {
	switch v := value(dict, "layer").(type) {
	case nil:
		return true
	case string:
		*to = v
		return v != "" && len(v) <= MaxLayerLen
	default:
		return false
	}
}

func readFlag(dict *httpsfv.Dictionary, name string, to **bool) bool {
	switch v := value(dict, name).(type) {
	case nil:
		return true
	case bool:
		*to = &v
		return true
	default:
		return false
	}
}

// Set writes the field, or removes it when c says nothing. Members that are out
// of range, which a reader would refuse together with the rest, are left out.
func (c RetryContext) Set(h http.Header) {
	var members []string
	if c.Attempt >= 1 && c.Attempt <= math.MaxInt32 {
		members = append(members, "attempt="+strconv.Itoa(c.Attempt))
	}
	if c.Max >= 1 && c.Max <= math.MaxInt32 {
		members = append(members, "max="+strconv.Itoa(c.Max))
	}
	if c.Layer != "" && len(c.Layer) <= MaxLayerLen && printable(c.Layer) {
		members = append(members, "layer="+quoteString(c.Layer))
	}
	members = appendFlag(members, "processed", c.Processed)
	members = appendFlag(members, "retry", c.Retry)
	if len(members) == 0 {
		h.Del(HeaderRetryContext)
		return
	}
	h[HeaderRetryContext] = []string{strings.Join(members, ", ")}
}

// appendFlag writes a boolean member; true is written by its name alone (RFC
// 9651 section 4.1.2).
func appendFlag(members []string, name string, v *bool) []string {
	switch {
	case v == nil:
		return members
	case *v:
		return append(members, name)
	default:
		return append(members, name+"=?0")
	}
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
