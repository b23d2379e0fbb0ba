// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

// TestExpire keeps rule L9 at its edges: a time of expiry is the first moment at
// which the thing is no more.
func TestExpire(t *testing.T) {
	t.Parallel()
	expires := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	until := expires.Add(time.Hour)
	for _, c := range []struct {
		name  string
		state reprise.State
		now   time.Time
		want  reprise.State
		gone  bool
	}{
		{"completed", reprise.StateCompleted, expires.Add(-time.Microsecond), reprise.StateCompleted, false},
		{"past its retention", reprise.StateCompleted, expires, reprise.StateTombstone, false},
		{"a tombstone", reprise.StateTombstone, until.Add(-time.Microsecond), reprise.StateTombstone, false},
		{"past its tombstone", reprise.StateTombstone, until, "", true},
		{"completed, past its tombstone", reprise.StateCompleted, until, "", true},
		{"in progress", reprise.StateInProgress, until, reprise.StateInProgress, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := store.Entry{
				State: c.state, ExpiresAt: expires, TombstoneUntil: until, Input: []byte("input"),
				Result: reprise.Result{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("body"), Reference: "order 1"},
			}
			gone := record.Expire(&e, c.now)
			if gone != c.gone || !gone && e.State != c.want {
				t.Fatalf("state %q, gone %t; want %q, %t", e.State, gone, c.want, c.gone)
			}
			stripped := e.Result.Header == nil && e.Result.Body == nil && e.Input == nil
			if !gone && stripped != (c.want == reprise.StateTombstone) {
				t.Errorf("of a record that is %s the contents are gone: %t", e.State, stripped)
			}
			if e.Result.Status != 201 || e.Result.Reference != "order 1" {
				t.Errorf("status %d and reference %q; both stay", e.Result.Status, e.Result.Reference)
			}
		})
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	done := store.Completion{
		Result:    reprise.Result{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("body")},
		Retention: time.Hour, Tombstone: time.Minute,
	}
	var e store.Entry
	record.Complete(&e, done)
	if e.State != reprise.StateCompleted || string(e.Result.Body) != "body" || e.Result.Header == nil {
		t.Errorf("completed as %+v", e)
	}
	if body, tombstone := record.Lifetimes(done); body != time.Hour || tombstone != time.Hour {
		t.Errorf("lives for %v and %v; the tombstone stays at least as long as the body", body, tombstone)
	}
	done.OmitBody = true
	record.Complete(&e, done)
	if e.State != reprise.StateTombstone || e.Result.Body != nil || e.Result.Header != nil || e.Result.Status != 201 {
		t.Errorf("completed without a body as %+v", e)
	}
	if body, tombstone := record.Lifetimes(done); body != 0 || tombstone != time.Hour {
		t.Errorf("lives for %v and %v without a body, want 0 and 1h", body, tombstone)
	}
	record.Complete(&e, store.Completion{})
	if e.Result.Body == nil {
		t.Error("a body of no bytes became none at all")
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	stored := reprise.Intent{Caller: "c", Operation: "o", Key: "k", Fingerprint: reprise.Fingerprint{1}}
	asked := stored
	asked.Fingerprint[0] = 2
	if err := record.Own(stored, asked); err != nil {
		t.Errorf("the same intent with other content is still the same intent: %v", err)
	}
	for _, other := range []reprise.Intent{
		{Caller: "d", Operation: "o", Key: "k"}, {Caller: "c", Operation: "p", Key: "k"}, {Caller: "c", Operation: "o", Key: "l"},
	} {
		if err := record.Own(stored, other); err == nil || !strings.Contains(err.Error(), "two intents have one id") {
			t.Errorf("the record of %v answers for %v: error %v", stored, other, err)
		}
	}
}

// TestColumns reads each type in each form in which a driver gives it.
func TestColumns(t *testing.T) {
	t.Parallel()
	given := []byte("bytes")
	c := record.Read([]driver.Value{
		"text", []byte("text"), nil, given, "bytes", []byte{}, nil,
		int64(7), uint64(7), []byte("7"), nil, int64(1), nil, []byte{1, 2},
	})
	for _, want := range []string{"text", "text", ""} {
		if got := c.Text(); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
	kept := c.Bytes()
	given[0] = 'X'
	if string(kept) != "bytes" || string(c.Bytes()) != "bytes" {
		t.Errorf("bytes %q; the driver's own are not kept", kept)
	}
	if empty, none := c.Bytes(), c.Bytes(); empty == nil || len(empty) > 0 || none != nil {
		t.Errorf("no bytes are %#v, and NULL is %#v", empty, none)
	}
	for _, want := range []int64{7, 7, 7, 0} {
		if got := c.Number(); got != want {
			t.Errorf("number %d, want %d", got, want)
		}
	}
	if at, none := c.Time(), c.Time(); at.UnixMicro() != 1 || at.Location() != time.UTC || !none.IsZero() {
		t.Errorf("times %v and %v", at, none)
	}
	var dest [2]byte
	if c.Array(dest[:]); dest != [2]byte{1, 2} || c.Err() != nil {
		t.Errorf("array %v, error %v", dest, c.Err())
	}
}

func TestDamagedColumns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value driver.Value
		read  func(*record.Columns)
	}{
		"a number for text":  {int64(1), func(c *record.Columns) { c.Text() }},
		"a number for bytes": {int64(1), func(c *record.Columns) { c.Bytes() }},
		"text for a number":  {"1", func(c *record.Columns) { c.Number() }},
		"letters for digits": {[]byte("one"), func(c *record.Columns) { c.Number() }},
		"too few bytes":      {[]byte{1}, func(c *record.Columns) { c.Array(make([]byte, 2)) }},
		"too many bytes":     {[]byte{1, 2, 3}, func(c *record.Columns) { c.Array(make([]byte, 2)) }},
		"too few values":     {"a", func(c *record.Columns) { _, _ = c.Text(), c.Text() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			columns := record.Read([]driver.Value{c.value})
			c.read(&columns)
			if err := columns.Err(); err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("error %v", err)
			}
		})
	}
}
