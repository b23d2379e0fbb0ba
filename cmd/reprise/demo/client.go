// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// patience is how long the client of R15.6 has.
const patience = 5 * time.Second

// newClient is what a user would write: an http.Client over the library's
// transport, which reads the policy for each endpoint from the shop's contract.
// The seed makes its waits the same in another run.
func newClient(c *contract.Contract, seed int64) (*http.Client, error) {
	policy, err := retry.New(&retry.Options{
		MaxAttempts: 10, Cap: 2 * time.Second, Deadline: time.Minute, Rand: seeded(seed),
	})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &retryhttp.Transport{
		Base:     &http.Transport{MaxIdleConnsPerHost: 64},
		Policy:   policy,
		Contract: retryhttp.FromContract(c),
	}}, nil
}

func seeded(seed int64) func() float64 {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}

// answer is how one call ended, for its caller. ID belongs to a resource, Code
// and Reference to a problem.
type answer struct {
	ID        string `json:"id"`
	Code      string `json:"code"`
	Reference string `json:"reference"`

	status   int
	attempts []reprise.Attempt
	err      error
}

// post makes one call under a key.
func (w *world) post(ctx context.Context, url string, key reprise.Key, body any) (a answer) {
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{err: err}
	}
	req, err := http.NewRequestWithContext(retryhttp.WithKey(ctx, key), http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer dev-"+w.db.caller)
	resp, err := w.client.Do(req)
	if err != nil {
		a.err = err
		if e, ok := errors.AsType[*retry.Error](err); ok {
			a.attempts = e.Attempts
		}
		return a
	}
	defer resp.Body.Close()
	a.status, a.attempts = resp.StatusCode, retryhttp.Attempts(resp)
	raw, err = io.ReadAll(resp.Body)
	if err != nil {
		a.err = err
		return a
	}
	// A gateway's own answer is text. It says nothing but its status.
	_ = json.Unmarshal(raw, &a)
	return a
}

// get reads one document without retrying.
func (w *world) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.plain.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// until polls a condition that another process brings about.
func (w *world) until(ctx context.Context, done func() (bool, error)) error {
	for deadline := time.Now().Add(settleTimeout); ; {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s", settleTimeout)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits for d, or for the end of the demo.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
