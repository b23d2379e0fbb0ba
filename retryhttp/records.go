// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
)

// Attempts returns the records of all attempts that led to resp, also when the
// first one succeeded (rule C9). It is nil for an answer that did not come
// through a Transport. After a redirect they are those of the last request.
func Attempts(resp *http.Response) []reprise.Attempt {
	if c, ok := callBehind(resp); ok {
		return c.Attempts()
	}
	return nil
}

// ErrorOf says what resp proves about its call. It is nil if the call succeeded,
// and otherwise what retry.Do would have returned: why there was no further
// attempt, when one may be made, and what all attempts together say of the
// effect, which is Unknown if one of them may have had it (rule C2). It is nil
// too for an answer that did not come through a Transport.
func ErrorOf(resp *http.Response) *retry.Error {
	c, ok := callBehind(resp)
	if !ok || c.Outcome() == reprise.Succeeded {
		return nil
	}
	return c.failure()
}

func callBehind(resp *http.Response) (*call, bool) {
	if resp == nil || resp.Request == nil {
		return nil, false
	}
	return callOf(resp.Request)
}
