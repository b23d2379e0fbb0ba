// SPDX-License-Identifier: Apache-2.0

package psp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/reprise-go/reprise"
)

// Fault is something that goes wrong with one charge request. It happens to
// requests with a known key too, as on a real network.
type Fault string

const (
	// CommitThenReset records the charge and resets the connection.
	CommitThenReset Fault = "commit-then-reset"
	// Hang records the charge and never answers.
	Hang Fault = "hang"
	// HangBefore records nothing and never answers.
	HangBefore Fault = "hang-before"
	// ErrorAfterCommit records the charge and answers 500.
	ErrorAfterCommit Fault = "500-after-commit"
	// ErrorBefore records nothing and answers 500.
	ErrorBefore Fault = "500"
	// Conflict records nothing and answers 409, as if the key were in flight.
	Conflict Fault = "409"
)

var allFaults = []Fault{CommitThenReset, Hang, HangBefore, ErrorAfterCommit, ErrorBefore, Conflict}

// faults is what is ordered and what has happened.
type faults struct {
	mu    sync.Mutex
	next  int
	fault Fault
	fired map[Fault]int
}

// take returns the fault that the next charge request suffers, or "".
func (f *faults) take() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == 0 {
		return ""
	}
	f.next--
	if f.fired == nil {
		f.fired = make(map[Fault]int)
	}
	f.fired[f.fault]++
	return f.fault
}

// faultsReport is what POST and GET /faults answer.
type faultsReport struct {
	Next  int           `json:"next"`
	Fault Fault         `json:"fault,omitempty"`
	Fired map[Fault]int `json:"fired"`
}

func (f *faults) report() faultsReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := faultsReport{Next: f.next, Fired: maps.Clone(f.fired)}
	if r.Fired == nil {
		r.Fired = map[Fault]int{}
	}
	if f.next > 0 {
		r.Fault = f.fault
	}
	return r
}

// orderFaults makes the next N charge requests fail. It takes the place of what
// was ordered before.
func (p *Provider) orderFaults(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Next  int   `json:"next"`
		Fault Fault `json:"fault"`
	}
	err := readJSON(w, r, &q)
	switch {
	case err != nil:
	case q.Next < 1:
		err = errors.New("next must be 1 or more")
	case !slices.Contains(allFaults, q.Fault):
		err = fmt.Errorf("fault must be one of %v", allFaults)
	}
	if err != nil {
		invalid(w, err)
		return
	}
	p.faults.mu.Lock()
	p.faults.next, p.faults.fault = q.Next, q.Fault
	p.faults.mu.Unlock()
	p.showFaults(w, r)
}

// showFaults tells what is still ordered, and how often each fault has fired.
func (p *Provider) showFaults(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.faults.report())
}

// before does what a fault does instead of the charge, and reports whether it
// did anything.
func (p *Provider) before(f Fault, w http.ResponseWriter, r *http.Request) bool {
	switch f {
	case HangBefore:
		p.hang(r)
	case ErrorBefore:
		refuse(w, http.StatusInternalServerError, reprise.CodeInternal, "the provider has failed")
	case Conflict:
		inFlight(w)
	default:
		return false
	}
	return true
}

// after does what a fault does instead of the answer, and reports whether it
// did anything.
func (p *Provider) after(f Fault, w http.ResponseWriter, r *http.Request) bool {
	switch f {
	case Hang:
		p.hang(r)
	case CommitThenReset:
		reset(w)
	case ErrorAfterCommit:
		refuse(w, http.StatusInternalServerError, reprise.CodeInternal, "the provider has failed")
	default:
		return false
	}
	return true
}

// hang waits until the client has gone or the provider ends, and then drops the
// connection without an answer.
func (p *Provider) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-p.closing:
	}
	panic(http.ErrAbortHandler)
}

// reset drops the connection with a TCP reset instead of an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
