// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/wire"
)

// JSON returns a result with v as its body. The members of maps are sorted, so
// that the same value is the same bytes. Add Location, ETag and the like to
// Header, and a Reference that outlives the body.
//
// v is written as version 2 of encoding/json does (github.com/go-json-experiment/json):
// a nil slice is [] and a nil map {}, omitempty leaves out what is empty in JSON
// (use omitzero for a 0 or a false), and <, > and & are not escaped.
func JSON(status int, v any) (reprise.Result, error) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return reprise.Result{}, err
	}
	return reprise.Result{
		Status: status,
		Header: map[string][]string{"Content-Type": {"application/json"}},
		Body:   body,
	}, nil
}

// writeAnswer sends a result. That the client does not get it changes nothing:
// it is committed, and the next attempt under the key is told.
func writeAnswer(w http.ResponseWriter, a ledger.Answer) {
	h := w.Header()
	for name, values := range a.Result.Header {
		if name = http.CanonicalHeaderKey(name); !framing[name] {
			h[name] = slices.Clone(values) // What is stored may be shared.
		}
	}
	if _, set := h["Content-Type"]; !set {
		h["Content-Type"] = nil // Without a stored type there is nothing to guess.
	}
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	if a.Replayed {
		h.Set(wire.HeaderReplayed, "true")
	}
	if !a.ExpiresAt.IsZero() {
		h.Set(wire.HeaderExpires, a.ExpiresAt.UTC().Format(http.TimeFormat))
	}
	if !bodyAllowed(a.Result.Status) {
		w.WriteHeader(a.Result.Status)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(a.Result.Body)))
	w.WriteHeader(a.Result.Status)
	_, _ = w.Write(a.Result.Body) // net/http leaves it out of the answer to a HEAD.
}
