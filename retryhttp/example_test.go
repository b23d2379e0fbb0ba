// SPDX-License-Identifier: Apache-2.0

package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
	"github.com/reprise-go/reprise/retryhttp"
)

// shop is a service that loses its first answer.
func shop() *httptest.Server {
	orders := map[string]string{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if orders[key] == "" {
			orders[key] = fmt.Sprintf("order %d", len(orders)+1)
			panic(http.ErrAbortHandler) // The order stands, and nobody is told.
		}
		w.Header().Set("Idempotent-Replayed", "true")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, orders[key])
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	return s
}

// An http.Client that repeats what is safe to repeat. The service's contract says
// that creating an order is keyed, so each order gets a key of its own.
func Example() {
	server := shop()
	defer server.Close()
	service, err := contract.New(contract.Operation{
		Name: "create-order", Method: "POST", Path: "/orders",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &retryhttp.Transport{Contract: retryhttp.FromContract(service)}}

	resp, err := client.Post(server.URL+"/orders", "application/json", strings.NewReader(`{"sku":"tea"}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Status, string(body))
	for _, a := range retryhttp.Attempts(resp) {
		fmt.Println(a.Number, a.Trigger, a.Outcome)
	}
	// Output:
	// 201 Created order 1
	// 1 first unknown
	// 2 reset succeeded
}

// A caller that stores its key beside its own row can ask again after a crash.
func ExampleWithKey() {
	server := shop()
	defer server.Close()
	client := &http.Client{Transport: &retryhttp.Transport{Ledger: true}}

	for range 2 { // The second time is another process, with the same row.
		ctx := retryhttp.WithKey(context.Background(), "basket-42")
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/orders", strings.NewReader(`{"sku":"tea"}`))
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(string(body))
	}
	// Output:
	// order 1
	// order 1
}

// A POST whose answer was lost is not a failed POST. Without a ledger on the
// other side it is not sent again, and the error says that nothing is known.
func ExampleTransport_inDoubt() {
	server := shop()
	defer server.Close()
	client := &http.Client{Transport: &retryhttp.Transport{}}

	resp, err := client.Post(server.URL+"/orders", "application/json", strings.NewReader(`{"sku":"tea"}`))
	if err == nil {
		_ = resp.Body.Close()
	}
	call, _ := errors.AsType[*retry.Error](err)
	fmt.Println(errors.Is(err, reprise.ErrOutcomeUnknown), call.Outcome, call.Reason)
	// Output: true unknown in-doubt
}

// Every attempt can be logged, the successful ones too.
func ExampleTransport_onAttempt() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Retry-Context") != "attempt=2, max=4" {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	policy, err := retry.New(&retry.Options{Base: time.Millisecond, Deadline: time.Minute})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &retryhttp.Transport{Policy: policy, OnAttempt: func(a reprise.Attempt) {
		logger.Info("attempt", "n", a.Number, "why", a.Trigger, "status", a.Status, "outcome", a.Outcome)
	}}}
	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	// Output:
	// level=INFO msg=attempt n=1 why=first status=429 outcome=not-processed
	// level=INFO msg=attempt n=2 why=status-429 status=200 outcome=succeeded
}
