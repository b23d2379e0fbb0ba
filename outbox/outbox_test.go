// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
)

// table is the enqueueing side of a store, with slices as transactions.
type table struct {
	store.Outbox[*[]reprise.Message]
}

func (table) Enqueue(_ context.Context, tx *[]reprise.Message, messages ...reprise.Message) error {
	*tx = append(*tx, messages...)
	return nil
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	enqueue := func(t *testing.T, c *outbox.Config, m ...reprise.Message) ([]reprise.Message, error) {
		t.Helper()
		o, err := outbox.New(table{}, c)
		if err != nil {
			t.Fatal(err)
		}
		var tx []reprise.Message
		err = o.Enqueue(t.Context(), &tx, m...)
		return tx, err
	}
	shop := &outbox.Config{Source: "/shop"}

	t.Run("O2 fills in what is open", func(t *testing.T) {
		t.Parallel()
		before := time.Now().Truncate(time.Microsecond)
		got, err := enqueue(t, shop, reprise.Message{Type: "order.created"}, reprise.Message{Type: "order.created"})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			minted, ok := reprise.Key(m.ID).MintedAt()
			if !ok || minted.Before(before.Add(-time.Millisecond)) {
				t.Errorf("id = %q, want a new UUIDv7", m.ID)
			}
			if m.Source != "/shop" || m.ContentType != "application/json" {
				t.Errorf("source = %q, content type = %q", m.Source, m.ContentType)
			}
			if m.Time.Before(before) || m.Time.Location() != time.UTC || m.Time.Nanosecond()%1000 != 0 {
				t.Errorf("time = %v, want now in UTC, in whole microseconds", m.Time)
			}
		}
		if got[0].ID == got[1].ID {
			t.Error("two messages have one id")
		}
	})

	t.Run("keeps what is given, in order", func(t *testing.T) {
		t.Parallel()
		given := reprise.Message{
			ID: "evt-1", Source: "/billing", Type: "order.paid", Subject: "order/7",
			Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600)), ContentType: "text/plain; charset=utf-8",
			Data: []byte("paid"), Header: map[string]string{"traceparent": "00-ab-cd-01"},
		}
		second := given
		second.ID = "evt-2"
		got, err := enqueue(t, shop, given, second)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids(got), []string{"evt-1", "evt-2"}) {
			t.Fatalf("ids = %v", ids(got))
		}
		m := got[0]
		if m.Source != given.Source || m.Subject != given.Subject || !m.Time.Equal(given.Time) ||
			m.ContentType != given.ContentType || string(m.Data) != "paid" || m.Header["traceparent"] != "00-ab-cd-01" {
			t.Errorf("got %+v, want %+v", m, given)
		}
	})

	t.Run("O2 freezes data and headers", func(t *testing.T) {
		t.Parallel()
		data, header := []byte("before"), map[string]string{"a": "before"}
		got, err := enqueue(t, shop, reprise.Message{Type: "x", Data: data, Header: header})
		if err != nil {
			t.Fatal(err)
		}
		copy(data, "AFTER!")
		header["a"] = "after"
		if string(got[0].Data) != "before" || got[0].Header["a"] != "before" {
			t.Errorf("data = %q, header = %v: they changed with the caller's", got[0].Data, got[0].Header)
		}
	})

	t.Run("one wrong message keeps all of them out", func(t *testing.T) {
		t.Parallel()
		got, err := enqueue(t, shop, reprise.Message{Type: "x"}, reprise.Message{})
		if !errors.Is(err, outbox.ErrInvalid) || len(got) != 0 {
			t.Errorf("error = %v with %d messages added, want ErrInvalid and none", err, len(got))
		}
		if err == nil || !strings.Contains(err.Error(), "message 2 of 2") {
			t.Errorf("error = %v, want it to name the message", err)
		}
	})

	// Wolverine GH-3926 (bug 40): a message over the broker's limit was retried for
	// ever. It is refused while its transaction can still be given up.
	t.Run("bug 40 over the size limit", func(t *testing.T) {
		t.Parallel()
		c := &outbox.Config{Source: "/s", MaxMessage: 1000}
		m := reprise.Message{ID: "i", Type: "t", ContentType: "a/b", Header: map[string]string{"h": "v"}}
		m.Data = make([]byte, 1000-len("i"+"/s"+"t"+"a/b"+"h"+"v"))
		if _, err := enqueue(t, c, m); err != nil {
			t.Errorf("exactly at the limit: %v", err)
		}
		m.Data = append(m.Data, 0)
		if _, err := enqueue(t, c, m); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("one byte over the limit: error = %v, want ErrInvalid", err)
		}
	})

	for name, m := range map[string]reprise.Message{
		"id with a line break":      {Type: "t", ID: "a\nb"},
		"id that is not ASCII":      {Type: "t", ID: "é"},
		"id too long":               {Type: "t", ID: strings.Repeat("i", 256)},
		"type with NUL":             {Type: "t\x00"},
		"subject too long":          {Type: "t", Subject: strings.Repeat("s", 256)},
		"subject not UTF-8":         {Type: "t", Subject: "\xff"},
		"year 10000":                {Type: "t", Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"content type malformed":    {Type: "t", ContentType: "json, please"},
		"header name empty":         {Type: "t", Header: map[string]string{"": "v"}},
		"header name with a space":  {Type: "t", Header: map[string]string{"a b": "v"}},
		"header name with a colon":  {Type: "t", Header: map[string]string{"a:": "v"}},
		"header name not ASCII":     {Type: "t", Header: map[string]string{"é": "v"}},
		"header names an attribute": {Type: "t", Header: map[string]string{"Subject": "v"}},
		"headers differ in case":    {Type: "t", Header: map[string]string{"a": "v", "A": "v"}},
		"header value with CR":      {Type: "t", Header: map[string]string{"a": "v\r\nb: c"}},
		"header value not UTF-8":    {Type: "t", Header: map[string]string{"a": "\xff"}},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			if got, err := enqueue(t, shop, m); !errors.Is(err, outbox.ErrInvalid) || len(got) != 0 {
				t.Errorf("error = %v with %d messages added, want ErrInvalid and none", err, len(got))
			}
		})
	}

	t.Run("accepts exactly the messages that pass on unchanged", func(t *testing.T) {
		t.Parallel()
		o, err := outbox.New(table{}, shop)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			m := reprise.Message{
				ID: rapid.String().Draw(t, "id"), Type: rapid.String().Draw(t, "type"),
				Subject: rapid.String().Draw(t, "subject"), Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
				Header: rapid.MapOf(rapid.StringMatching(`[a-z-]{0,4}`), rapid.String()).Draw(t, "header"),
			}
			var tx []reprise.Message
			err := o.Enqueue(t.Context(), &tx, m)
			switch {
			case err != nil && (!errors.Is(err, outbox.ErrInvalid) || len(tx) != 0):
				t.Fatalf("error = %v with %d messages added", err, len(tx))
			case err == nil && (len(tx) != 1 || tx[0].Type != m.Type || tx[0].Subject != m.Subject || m.ID != "" && tx[0].ID != m.ID):
				t.Fatalf("got %+v of %+v", tx, m)
			case err == nil && strings.ContainsAny(tx[0].ID+m.Type+m.Subject, "\r\n\x00"):
				t.Fatalf("accepted control characters: %+v", tx[0])
			}
		})
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	t.Run("refuses what would make every message fail", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			config *outbox.Config
			says   string
		}{
			{nil, `name this system, such as "/shop"`},
			{&outbox.Config{}, `name this system, such as "/shop"`},
			{&outbox.Config{Source: strings.Repeat("s", 256)}, "its source has 256 bytes"},
			{&outbox.Config{Source: "/shop\n"}, "control characters"},
			{&outbox.Config{Source: "/shop", MaxMessage: -1}, "MaxMessage is -1"},
		} {
			o, err := outbox.New(table{}, c.config)
			if o != nil || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("New(%+v) = %v and error %v, want an error with %q", c.config, o, err, c.says)
			}
		}
		if o, err := outbox.New[int](nil, &outbox.Config{Source: "/shop"}); o != nil || err == nil {
			t.Errorf("New without a store = %v and error %v", o, err)
		}
	})

	t.Run("what it takes can be enqueued under", func(t *testing.T) {
		t.Parallel()
		o, err := outbox.New(table{}, &outbox.Config{Source: strings.Repeat("s", 255)})
		if err != nil {
			t.Fatal(err)
		}
		var tx []reprise.Message
		if err := o.Enqueue(t.Context(), &tx, reprise.Message{Type: "t"}); err != nil || len(tx) != 1 {
			t.Errorf("%d messages added, error %v; want 1", len(tx), err)
		}
	})
}
