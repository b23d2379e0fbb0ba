// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

const (
	// maxProviderAnswer is the most that is read of an answer, in bytes.
	maxProviderAnswer = 4 << 20
	// maxProviderWords is the most that is repeated of an answer that can't be
	// taken for a decision, in bytes.
	maxProviderWords = 256
)

// provider is the shop's client of the payment provider. It never repeats a
// request: that is the business of the run that makes it, and of nobody below.
type provider struct {
	base    string
	timeout time.Duration
	client  *http.Client
	log     *slog.Logger
}

func newProvider(base string, timeout time.Duration, log *slog.Logger) *provider {
	return &provider{base: base, timeout: timeout, log: log, client: &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     30 * time.Second,
		},
		// A redirect would be a second request.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (p *provider) close() { p.client.CloseIdleConnections() }

// chargeRequest is the body of the call. Reference is the payment's id.
type chargeRequest struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Source    string `json:"source"`
}

// chargeAnswer is what the provider says of a charge.
type chargeAnswer struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	// Status is statusCaptured or statusDeclined.
	Status string `json:"status"`
}

// charge sends request once, under key, and returns the provider's decision: the
// charge that was captured or declined. Everything else is unknown, whether the
// request was lost, the answer was, or its meaning is. That goes for a 400 and a
// 422 too: the provider says them of a key that has made a charge with other
// parameters, and then there is one. Somebody has to look, so it is an error in
// the log; the run stays in progress and is driven again.
func (p *provider) charge(ctx context.Context, key reprise.Key, request []byte) ([]byte, error) {
	answer, err := p.post(ctx, key, request)
	if err != nil {
		p.log.ErrorContext(ctx, "what became of a charge is not known", "key", string(key), "error", err)
	}
	return answer, err
}

func (p *provider) post(ctx context.Context, key reprise.Key, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/charges", bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // net/http would send the request again by itself (rule C3).
	req.Header.Set("Content-Type", "application/json")
	wire.SetKey(req.Header, key)
	status, body, err := p.do(req)
	if err != nil {
		return nil, err
	}
	if err := checkCharge(status, body, request); err != nil {
		return nil, fmt.Errorf("the provider answered %d %q: %w", status, body[:min(len(body), maxProviderWords)], err)
	}
	return body, nil
}

// do sends req and reads the answer to its end.
func (p *provider) do(req *http.Request) (status int, body []byte, err error) {
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxProviderAnswer))
	return resp.StatusCode, body, err
}

// checkCharge reports an answer that can't be taken for a decision on request.
func checkCharge(status int, answer, request []byte) error {
	if status != http.StatusOK && status != http.StatusPaymentRequired {
		return errors.New("that is no decision")
	}
	var a chargeAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("it can't be read: %w", err)
	}
	var q chargeRequest
	if err := json.Unmarshal(request, &q); err != nil {
		return err
	}
	agrees := status == http.StatusOK && a.Status == statusCaptured ||
		status == http.StatusPaymentRequired && a.Status == statusDeclined
	if !agrees || a.ID == "" || a.Reference != q.Reference {
		return errors.New("it is not the charge that was asked for")
	}
	return nil
}

// captured counts the charges that the provider has captured for a reference.
func (p *provider) captured(ctx context.Context, reference string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	n := 0
	for next := "/charges?" + (url.Values{"reference": {reference}}).Encode(); next != ""; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+next, nil)
		if err != nil {
			return 0, err
		}
		status, body, err := p.do(req)
		if err != nil {
			return 0, err
		}
		var page struct {
			Items []chargeAnswer `json:"items"`
			Next  string         `json:"next"`
		}
		if status != http.StatusOK {
			return 0, fmt.Errorf("the provider answered %d", status)
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return 0, fmt.Errorf("the provider's list can't be read: %w", err)
		}
		for _, c := range page.Items {
			if c.Status == statusCaptured && c.Reference == reference {
				n++
			}
		}
		next = page.Next
	}
	return n, nil
}
