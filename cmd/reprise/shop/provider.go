// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// maxProviderAnswer is the most that is read of an answer, in bytes.
const maxProviderAnswer = 4 << 20

// provider is the shop's client of the payment provider. It never repeats a
// request: that is the business of the run that makes it, and of nobody below.
type provider struct {
	base    string
	timeout time.Duration
	client  *http.Client
}

func newProvider(base string, timeout time.Duration) *provider {
	return &provider{base: base, timeout: timeout, client: &http.Client{
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

// charge sends request once, under key, and returns the provider's decision. Its
// error says what is known: everything that is not clearly a decision is unknown,
// whether the request was lost, the answer was, or its meaning is.
func (p *provider) charge(ctx context.Context, key reprise.Key, request []byte) ([]byte, error) {
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
	switch status {
	case http.StatusOK, http.StatusPaymentRequired:
		return body, checkCharge(status, body, request)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		// The provider has read the request and will not make this charge, now or
		// under this key ever.
		return body, &reprise.Error{Code: codeDeclined, Outcome: reprise.Rejected, Detail: "the provider refused the charge"}
	}
	return nil, fmt.Errorf("the provider answered %d", status)
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
	var a chargeAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("the provider's answer can't be read: %w", err)
	}
	var q chargeRequest
	if err := json.Unmarshal(request, &q); err != nil {
		return err
	}
	agrees := status == http.StatusOK && a.Status == statusCaptured ||
		status == http.StatusPaymentRequired && a.Status == statusDeclined
	if !agrees || a.ID == "" || a.Reference != q.Reference {
		return errors.New("the provider's answer contradicts itself")
	}
	return nil
}

// readCharge returns what the provider decided, from what is on record of the
// call. Any error but a decision against the charge is returned.
func readCharge(response []byte, err error) (chargeAnswer, error) {
	switch {
	case reprise.OutcomeOf(err) == reprise.Rejected:
		return chargeAnswer{Status: statusDeclined}, nil
	case err != nil:
		return chargeAnswer{}, err
	}
	var a chargeAnswer
	return a, json.Unmarshal(response, &a)
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
