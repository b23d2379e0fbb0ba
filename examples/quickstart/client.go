// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/retryhttp"
)

// [client]

// buy asks for one order. Under one key it may be called again and again.
func buy(ctx context.Context, url string, key reprise.Key, body string) (*http.Response, error) {
	client := &http.Client{Transport: &retryhttp.Transport{Ledger: true}} // the servers behind it keep a ledger
	req, err := http.NewRequestWithContext(retryhttp.WithKey(ctx, key), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

// [client]
