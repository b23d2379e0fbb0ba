// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/serve"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/wire"
)

// readyTimeout is how long the database may take to say that it is there.
const readyTimeout = 2 * time.Second

// admin is what an operator may see and do. Whether the shop lives and is ready
// may be asked by everybody, because whoever asks that has no token.
func (s *Shop) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, state{"ok"}) })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.operator(promhttp.HandlerFor(s.metrics.registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})))
	mux.Handle("GET /effects", s.operator(answering(s.showEffects)))
	mux.Handle("GET /ledger", s.operator(answering(s.showLedger)))
	mux.Handle("POST /recover", s.operator(answering(s.recoverNow)))
	return serve.Problems(mux)
}

// operator lets those in who have the admin token, if there is one.
func (s *Shop) operator(h http.Handler) http.Handler {
	if s.config.AdminToken == "" {
		return h
	}
	want := sha256.Sum256([]byte(s.config.AdminToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := bearer(r)
		got := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			wire.ProblemOf(&reprise.Error{
				Code: reprise.CodeUnauthenticated, Outcome: reprise.NotProcessed,
				Detail: "this listener demands its admin token",
			}).Write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// answering is a handler that answers with JSON or with the problem of its error.
func answering(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			wire.ProblemOf(err).Write(w)
			return
		}
		writeJSON(w, v)
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // The client has gone; there is nobody to tell.
}

type state struct {
	Status string `json:"status"`
}

// ready says whether requests should be sent here: not while the shop is ending,
// and not while it can't reach its database.
func (s *Shop) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	why := ""
	switch {
	case s.draining.Load():
		why = "the shop is draining"
	case s.db.PingContext(ctx) != nil:
		why = "the database can't be reached"
	}
	if why != "" {
		wire.ProblemOf(ledgerhttp.Refuse(http.StatusServiceUnavailable, "not-ready", why)).Write(w)
		return
	}
	writeJSON(w, state{"ready"})
}

func (s *Shop) showEffects(r *http.Request) (any, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query) != 2 || len(query["caller"]) != 1 || len(query["ref"]) != 1 ||
		!isText(query.Get("caller")) || !isText(query.Get("ref")) {
		return nil, ledgerhttp.Invalid("say which with ?caller=NAME&ref=R, and nothing else")
	}
	e, err := s.countEffects(r.Context(), reprise.Caller(query.Get("caller")), query.Get("ref"))
	if err != nil {
		s.log.WarnContext(r.Context(), "effects could not be counted", "error", err)
		return nil, ledgerhttp.Refuse(http.StatusServiceUnavailable, "effects-unavailable",
			"the effects can't be counted now: the database or the provider does not answer")
	}
	return e, nil
}

// entry is one record of the ledger, as an operator sees it: without its input,
// header fields and body, which belong to its caller.
type entry struct {
	ID             string            `json:"id"`
	Caller         reprise.Caller    `json:"caller"`
	Operation      reprise.Operation `json:"operation"`
	Key            reprise.Key       `json:"key"`
	Fingerprint    string            `json:"fingerprint"`
	State          reprise.State     `json:"state"`
	Status         int               `json:"status,omitempty"`
	Reference      string            `json:"reference,omitempty"`
	Drives         int               `json:"drives,omitempty"`
	LeaseUntil     time.Time         `json:"lease_until,omitzero"`
	ClaimedAt      time.Time         `json:"claimed_at"`
	CompletedAt    time.Time         `json:"completed_at,omitzero"`
	ExpiresAt      time.Time         `json:"expires_at,omitzero"`
	TombstoneUntil time.Time         `json:"tombstone_until,omitzero"`
}

func newEntry(e store.Entry) entry {
	return entry{
		ID: e.ID.String(), Caller: e.Intent.Caller, Operation: e.Intent.Operation, Key: e.Intent.Key,
		Fingerprint: e.Intent.Fingerprint.String(), State: e.State,
		Status: e.Result.Status, Reference: e.Result.Reference, Drives: e.Drives, LeaseUntil: e.LeaseUntil,
		ClaimedAt: e.ClaimedAt, CompletedAt: e.CompletedAt, ExpiresAt: e.ExpiresAt, TombstoneUntil: e.TombstoneUntil,
	}
}

func (s *Shop) showLedger(r *http.Request) (any, error) {
	l, err := readListing(r.URL, "state")
	if err != nil {
		return nil, err
	}
	f := store.EntryFilter{State: reprise.State(l.value), Limit: l.limit}
	switch f.State {
	case "", reprise.StateInProgress, reprise.StateUnsettled, reprise.StateCompleted, reprise.StateTombstone:
	default:
		return nil, ledgerhttp.Invalid("state must be in_progress, unsettled, completed or tombstone")
	}
	if l.after != "" {
		id, err := hex.DecodeString(l.after)
		if err != nil || len(id) != len(f.After) {
			return nil, ledgerhttp.Invalid("after is not the id of an entry")
		}
		f.After = reprise.IntentID(id)
	}
	found, err := s.driver.Entries(r.Context(), f)
	if err == nil && len(found) == l.limit { // One more tells whether there is a next page.
		var more []store.Entry
		more, err = s.driver.Entries(r.Context(), store.EntryFilter{State: f.State, After: found[l.limit-1].ID, Limit: 1})
		found = append(found, more...)
	}
	if err != nil {
		return nil, err
	}
	entries := make([]entry, len(found))
	for i, e := range found {
		entries[i] = newEntry(e)
	}
	return page(l, entries, func(e entry) string { return e.ID }), nil
}

// recoverNow drives every payment on whose worker is gone, without waiting for
// the next turn of the recovery that runs by itself.
func (s *Shop) recoverNow(r *http.Request) (any, error) {
	if r.URL.RawQuery != "" {
		return nil, ledgerhttp.Invalid("this resource has no query parameters")
	}
	return s.ledger.Recover(r.Context())
}
