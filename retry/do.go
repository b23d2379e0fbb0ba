// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"

	"github.com/reprise-go/reprise"
)

// Do calls fn until it succeeds, p says stop, or ctx ends. A nil p is
// Interactive.
//
// fn makes one attempt under the context it is given, which ends after
// AttemptTimeout or at the deadline. Its error says what it proved: an
// *reprise.Error claims its Outcome, any other error is Unknown, and is tried
// again only if Options.Safety allows it; Options.Classify can know better. fn
// may fill in Key, Status, Sends and Reused of the attempt's record, must not
// keep it, and must release what it returns together with an error.
//
// On success the result is fn's. Otherwise it is what fn returned last, and the
// error is an *Error. A panic of fn is not caught.
func Do[T any](ctx context.Context, p *Policy, fn func(ctx context.Context, a *reprise.Attempt) (T, error)) (T, error) {
	p = p.orDefault()
	var c Call
	c.Start(ctx, p, p.o.Safety, "")
	var result T
	for {
		a, err := c.Begin(ctx)
		if err != nil {
			return result, err
		}
		a.Sends = 1 // fn may know better.
		result, err = attempt(ctx, &c, &a, fn)
		c.key = a.Key
		verdict := Verdict{Outcome: reprise.Succeeded}
		if err != nil {
			verdict = p.o.Classify(&a, err)
			verdict.Err = err
			if verdict.Outcome == reprise.Succeeded {
				verdict.Outcome = reprise.Unknown // An error is no success, whatever it claims.
			}
		}
		verdict.Status, verdict.Sends, verdict.Reused = a.Status, a.Sends, a.Reused
		d := c.End(ctx, verdict)
		if err == nil {
			return result, nil
		}
		if !d.Retry {
			return result, c.Failure()
		}
		if err := c.Wait(ctx, d); err != nil {
			return result, err
		}
	}
}

// attempt runs fn once, within the attempt's limit.
func attempt[T any](ctx context.Context, c *Call, a *reprise.Attempt, fn func(context.Context, *reprise.Attempt) (T, error)) (T, error) {
	if limit, ok := c.Limit(ctx); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, limit, c.Timeout())
		defer cancel()
	}
	return fn(ctx, a)
}
