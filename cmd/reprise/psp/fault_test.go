// SPDX-License-Identifier: Apache-2.0

package psp_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	// made is whether the charge is made although its maker isn't told.
	for fault, row := range map[psp.Fault]struct{ status, made int }{
		psp.CommitThenReset:  {0, 1},
		psp.Hang:             {0, 1},
		psp.HangBefore:       {0, 0},
		psp.ErrorAfterCommit: {500, 1},
		psp.ErrorBefore:      {500, 0},
		psp.Conflict:         {409, 0},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			m := open(t, psp.Config{})
			m.order(1, fault)
			if fault == psp.Hang || fault == psp.HangBefore {
				m.hangUp(fault)
			} else if r := m.charge("k", "r", 1); r.status != row.status {
				t.Fatalf("%d %s; want %d", r.status, r.body, row.status)
			}
			if n := m.fired(fault); n != 1 {
				t.Fatalf("the fault fired %d times", n)
			}
			m.count("r", row.made)
			if r := m.charge("k", "r", 1); r.status != 200 {
				t.Fatalf("repeat: %d %s", r.status, r.body)
			}
			m.count("r", 1)
		})
	}
	t.Run("are refused if unknown", func(t *testing.T) {
		t.Parallel()
		m := open(t, psp.Config{})
		for _, body := range []string{`{"next":1,"fault":"fire"}`, `{"next":-1,"fault":"500"}`, `{"next":0,"fault":"500"}`, `{"fault":"500"}`, `{"next":1}`, `{}`, `{`} {
			if r := m.do("POST", "/faults", "", body); r.status != 400 {
				t.Errorf("%s: %d", body, r.status)
			}
		}
		if r := m.charge("k", "r", 1); r.status != 200 {
			t.Errorf("charge: %d", r.status)
		}
	})
	t.Run("can be exchanged for others", func(t *testing.T) {
		t.Parallel()
		m := open(t, psp.Config{})
		m.order(3, psp.ErrorBefore)
		m.order(1, psp.Conflict)
		if r := m.charge("k", "r", 1); r.status != 409 || m.fired(psp.ErrorBefore) != 0 || m.fired(psp.Conflict) != 1 {
			t.Errorf("charge: %d", r.status)
		}
		if r := m.charge("k", "r", 1); r.status != 200 {
			t.Errorf("charge: %d", r.status)
		}
		m.count("r", 1)
	})
}

// hangUp sends a charge, waits until the fault has it, and then goes away by
// releasing what hangs.
func (m *merchant) hangUp(fault psp.Fault) {
	m.t.Helper()
	answered := make(chan reply, 1)
	go func() { answered <- m.charge("k", "r", 1) }()
	wants := map[psp.Fault]int{psp.Hang: 1}[fault]
	for deadline := time.Now().Add(5 * time.Second); m.fired(fault) == 0 || len(m.charges("")) != wants; {
		if time.Now().After(deadline) {
			m.t.Fatal("the fault did not fire")
		}
	}
	select {
	case r := <-answered:
		m.t.Fatalf("answered %d %s", r.status, r.body)
	default:
	}
	m.provider.Release()
	if r := <-answered; r.status != 0 {
		m.t.Fatalf("answered %d %s", r.status, r.body)
	}
}
