// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/wire"
)

// judge is what an answer proves (rules C1, C7, C8 and C11), if it came to its
// end. data is the beginning of its content.
func (c *call) judge(resp *http.Response, data []byte) retry.Verdict {
	status := resp.StatusCode
	marked := c.Key() != "" && stored(resp.Header)
	if marked {
		c.transport.ledgers.learn(c.request)
	}
	if status < 300 { // 1xx is 101 Switching Protocols; the others never come here.
		return retry.Verdict{Outcome: reprise.Succeeded}
	}
	problem, isProblem := wire.ReadProblem(resp, data)
	v := retry.Verdict{Err: c.statusError(resp, data, problem, isProblem)}
	switch {
	case isProblem && problem.Code == reprise.CodeInProgress && c.Key() != "" && status >= 400:
		// Only a ledger knows that, so that the key may be sent again in doubt.
		c.SetSafety(contract.Keyed)
		v.InProgress, v.Trigger = true, string(reprise.CodeInProgress)
	case marked:
		v.Final = true
		v.Settled = status < 500
		v.Outcome = byStatus(status)
	case isProblem && problem.Code == reprise.CodeKeyExpired:
		v.Final = true // An earlier attempt may have had its effect.
	default:
		v.Outcome, v.Final = c.decide(resp, problem)
	}
	if v.Outcome == reprise.Succeeded {
		v.Err = nil
	}
	if !v.Final && v.Outcome != reprise.Rejected {
		v.After, _ = wire.RetryAfter(resp.Header, time.Now())
		if v.Trigger == "" {
			v.Trigger = "status-" + strconv.Itoa(status)
		}
	}
	return v
}

// decide judges an answer by what it says of itself, and else by its status.
// problem is the zero value when there is no document.
func (c *call) decide(resp *http.Response, problem wire.Problem) (outcome reprise.Outcome, final bool) {
	outcome = byStatus(resp.StatusCode)
	hint := wire.ReadRetryContext(resp.Header)
	if resp.StatusCode == http.StatusRequestEntityTooLarge && len(resp.Header["Retry-After"]) > 0 {
		outcome = reprise.NotProcessed // The condition is temporary (RFC 9110 section 15.5.14).
	}
	if resp.StatusCode >= 500 && hint.Processed != nil && !*hint.Processed {
		outcome = reprise.NotProcessed
	}
	// A document knows better than a status, unless that says that the request was
	// wrong. No document makes a success of an error.
	if claim := problem.Outcome; outcome != reprise.Rejected && (claim == reprise.NotProcessed || claim == reprise.Rejected) {
		outcome = claim
	}
	switch problem.Retry {
	case wire.RetryFix, wire.RetryNewKey, wire.RetryReconcile:
		final = true
	}
	if hint.Retry != nil && !*hint.Retry {
		final = true
	}
	return outcome, final || resp.StatusCode < 400
}

// byStatus is what a status proves by itself.
func byStatus(status int) reprise.Outcome {
	switch status {
	case http.StatusSeeOther, http.StatusNotModified:
		return reprise.Succeeded
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		// The request did not arrive, or was turned away (RFC 9110 sections 15.5.9
		// and 15.5.20, RFC 8470 section 5.2, RFC 6585 section 4).
		return reprise.NotProcessed
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return reprise.Rejected
	}
	if status >= 400 && status < 500 {
		return reprise.Rejected
	}
	// A redirect may come after an effect, and so may a gateway's error.
	return reprise.Unknown
}

func (c *call) statusError(resp *http.Response, data []byte, p wire.Problem, isProblem bool) error {
	e := &StatusError{Status: resp.StatusCode, Header: resp.Header, Body: head(data)}
	if isProblem && p.Code != "" {
		e.Err = &reprise.Error{
			Code: p.Code, Detail: p.Detail, Outcome: p.Outcome, RetryAfter: p.RetryAfter,
			Status: p.Status, Reference: p.Reference,
		}
	}
	return e
}
