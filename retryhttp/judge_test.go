// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// TestAnswers is the table of what each answer proves. The server gives the same
// answer every time, and counts.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const (
		keyed     = "Idempotency-Key: k1"
		replayed  = "Idempotent-Replayed: true"
		expires   = "Idempotency-Expires: Sat, 01 Jan 2028 00:00:00 GMT"
		untouched = "Retry-Context: processed=?0"
		never     = "Retry-Context: retry=?0"
	)
	problem := func(code, outcome, advice string) string {
		return fmt.Sprintf(`{"type":"urn:reprise:problem:%s","code":%q,"outcome":%q,"retry":%q}`, code, code, outcome, advice)
	}
	s, r, n, u := reprise.Succeeded, reprise.Rejected, reprise.NotProcessed, reprise.Unknown
	once, all := 1, 3
	for _, row := range []struct {
		rule    string
		method  string
		key     bool
		ledger  bool
		status  int
		body    string
		fields  []string
		sends   int
		outcome reprise.Outcome
		reason  retry.Reason
	}{
		{"C8 success is final", "POST", false, false, 201, "{}", nil, once, s, ""},
		{"C8 no content is success", "DELETE", false, false, 204, "", nil, once, s, ""},
		{"C8 not modified is success", "GET", false, false, 304, "", nil, once, s, ""},
		{"C8 see other is success", "POST", false, false, 303, "", nil, once, s, ""},
		{"C1 a redirect proves nothing", "POST", false, false, 308, "", nil, once, u, retry.ReasonFinal},

		{"C8 bad request is final", "GET", false, false, 400, "", nil, once, r, retry.ReasonFinal},
		{"C8 not found is final", "GET", false, false, 404, "", nil, once, r, retry.ReasonFinal},
		{"C8 a conflict of the business is final", "POST", true, true, 409, "", nil, once, r, retry.ReasonFinal},
		{"C8 a declined payment is final", "POST", true, true, 402, problem("declined", "rejected", "new-key"), nil, once, r, retry.ReasonFinal},
		{"C8 a failed precondition is final", "PUT", false, false, 412, "", nil, once, r, retry.ReasonFinal},
		{"C8 not implemented is final", "GET", false, false, 501, "", nil, once, r, retry.ReasonFinal},

		{"C8 408 did not arrive", "POST", false, false, 408, "", nil, all, n, retry.ReasonAttempts},
		{"C8 421 went to the wrong server", "POST", false, false, 421, "", nil, all, n, retry.ReasonAttempts},
		{"C8 425 was too early", "POST", false, false, 425, "", nil, all, n, retry.ReasonAttempts},
		{"C8 429 was turned away", "POST", false, false, 429, "", nil, all, n, retry.ReasonAttempts},
		{"C8 413 is final", "POST", false, false, 413, "", nil, once, r, retry.ReasonFinal},
		{"C8 413 for a while is not", "POST", false, false, 413, "", []string{"Retry-After: 0"}, all, n, retry.ReasonAttempts},

		{"C8 500 may have had its effect", "POST", false, false, 500, "", nil, once, u, retry.ReasonInDoubt},
		{"C8 502 may have had its effect", "POST", false, false, 502, "", nil, once, u, retry.ReasonInDoubt},
		{"C8 503 may have had its effect", "POST", false, false, 503, "", nil, once, u, retry.ReasonInDoubt},
		{"C8 504 may have had its effect", "PATCH", false, false, 504, "", nil, once, u, retry.ReasonInDoubt},
		{"C8 500 to a safe request", "GET", false, false, 500, "", nil, all, u, retry.ReasonAttempts},
		{"C8 502 to an idempotent request", "PUT", false, false, 502, "", nil, all, u, retry.ReasonAttempts},
		{"C8 504 to a keyed request", "POST", true, true, 504, "", nil, all, u, retry.ReasonAttempts},
		{"C10 a key alone is no ledger", "POST", true, false, 503, "", nil, once, u, retry.ReasonInDoubt},

		{"C8 503 that proves it did not act", "POST", false, false, 503, "", []string{untouched}, all, n, retry.ReasonAttempts},
		{"C8 500 that was rolled back", "POST", false, false, 500, problem("internal", "not-processed", "same-key"), nil, all, n, retry.ReasonAttempts},
		{"C8 503 of a store that is away", "POST", false, false, 503, problem("store-unavailable", "not-processed", "same-key"), nil, all, n, retry.ReasonAttempts},
		{"C8 503 with the outcome unknown", "POST", true, true, 503, problem("outcome-unknown", "unknown", "same-key"), nil, all, u, retry.ReasonAttempts},
		{"C10 its advice does not make a ledger", "POST", true, false, 503, problem("outcome-unknown", "unknown", "same-key"), nil, once, u, retry.ReasonInDoubt},
		{"C1 a problem can't make a success", "POST", false, false, 500, problem("internal", "succeeded", "same-key"), nil, once, u, retry.ReasonInDoubt},
		{"C1 a problem of somebody else", "PUT", false, false, 503, `{"type":"about:blank","title":"busy"}`, nil, all, u, retry.ReasonAttempts},
		{"C8 the server says that retrying is of no use", "GET", false, false, 503, "", []string{never}, once, u, retry.ReasonFinal},
		{"C8 the retry context decides nothing when malformed", "GET", false, false, 503, "", []string{"Retry-Context: retry=?0, ((("}, all, u, retry.ReasonAttempts},

		{"C8 a key used for something else is final", "POST", true, true, 422, problem("key-reused", "not-processed", "new-key"), nil, once, r, retry.ReasonFinal},
		{"C8 an expired key is for reconciliation", "POST", true, true, 410, problem("key-expired", "unknown", "reconcile"), nil, once, u, retry.ReasonFinal},
		{"C8 a missing key is final", "POST", false, false, 400, problem("key-missing", "not-processed", "fix"), nil, once, r, retry.ReasonFinal},
		{"C7 in progress means nothing without a key", "POST", false, false, 409, problem("in-progress", "unknown", "same-key"), nil, once, r, retry.ReasonFinal},

		// stripe/stripe-node#559: a replayed 500 is replayed for ever.
		{"C11 a replayed 500 is final", "POST", true, true, 500, "", []string{replayed}, once, u, retry.ReasonFinal},
		{"C11 a replayed 503 is final for PUT", "PUT", true, false, 503, "", []string{replayed}, once, u, retry.ReasonFinal},
		{"C11 a stored 429 is final", "POST", true, true, 429, "", []string{expires}, once, n, retry.ReasonFinal},
		{"C11 without a key the mark means nothing", "GET", false, false, 500, "", []string{replayed}, all, u, retry.ReasonAttempts},
	} {
		t.Run(fmt.Sprintf("%s/%s %d", row.rule, row.method, row.status), func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(x exchange) bool {
				fields := row.fields
				if len(row.body) > 2 {
					fields = append(slices.Clip(fields), "Content-Type: application/problem+json")
				}
				if row.status >= 300 && row.status < 400 {
					fields = append(slices.Clip(fields), "Location: /elsewhere")
				}
				return x.answer(row.status, row.body, fields...)
			})
			c := client(t, &retryhttp.Transport{Policy: policy(t, retry.Options{MaxAttempts: all}), Ledger: row.ledger})
			var fields []string
			if row.key {
				fields = append(fields, keyed)
			}
			resp, err := c.Transport.RoundTrip(request(t, row.method, srv.url+"/orders", "", fields...))
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, resp); got != row.body || resp.StatusCode != row.status {
				t.Errorf("answer is %d %q, want the server's own", resp.StatusCode, got)
			}
			records := retryhttp.Attempts(resp)
			if got := len(srv.seen()); got != row.sends || len(records) != row.sends {
				t.Errorf("processed %d times with %d records, want %d", got, len(records), row.sends)
			}
			e := retryhttp.ErrorOf(resp)
			if row.outcome == s {
				if e != nil || records[0].Outcome != s || records[0].Err != nil {
					t.Errorf("a success says %v, and its record %+v", e, records[0])
				}
				return
			}
			if e == nil || e.Outcome != row.outcome || e.Reason != row.reason || reprise.OutcomeOf(e) != row.outcome {
				t.Errorf("it says %+v, want outcome %v, reason %q", e, row.outcome, row.reason)
			}
			for _, a := range records {
				if a.Status != row.status || a.Sends != 1 || a.Err == nil || a.Outcome != row.outcome {
					t.Errorf("record %+v", a)
				}
			}
		})
	}
}
