// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/reprise-go/reprise/wire"
)

type retryContextVector struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
	Says  struct {
		Attempt   int    `json:"attempt"`
		Max       int    `json:"max"`
		Layer     string `json:"layer"`
		Processed *bool  `json:"processed"`
		Retry     *bool  `json:"retry"`
	} `json:"says"`
}

func TestReadRetryContext(t *testing.T) {
	t.Parallel()
	rows := vectors[[]retryContextVector](t, "retry-context.json")
	if len(rows) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, row := range rows {
		t.Run("W4 "+row.Name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if len(row.Lines) > 0 {
				h[wire.HeaderRetryContext] = row.Lines
			}
			got, want := wire.ReadRetryContext(h), wire.RetryContext(row.Says)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q says %+v; want %+v", row.Lines, got, want)
			}
		})
	}
}

func TestRetryContextSet(t *testing.T) {
	t.Parallel()

	t.Run("W4 is read as it was set", func(t *testing.T) {
		t.Parallel()
		flag := rapid.Ptr(rapid.Bool(), true)
		layer := rapid.StringOfN(rapid.RuneFrom(nil, &printableASCII), 0, wire.MaxLayerLen, -1)
		rapid.Check(t, func(t *rapid.T) {
			c := wire.RetryContext{
				Attempt:   int(rapid.Int32Min(0).Draw(t, "attempt")),
				Max:       int(rapid.Int32Min(0).Draw(t, "max")),
				Layer:     layer.Draw(t, "layer"),
				Processed: flag.Draw(t, "processed"),
				Retry:     flag.Draw(t, "retry"),
			}
			h := http.Header{wire.HeaderRetryContext: {"attempt=9", "max=9"}}
			c.Set(h)
			if got := wire.ReadRetryContext(h); !reflect.DeepEqual(got, c) {
				t.Fatalf("%+v is written as %q and read as %+v", c, h[wire.HeaderRetryContext], got)
			}
		})
	})

	t.Run("W4 nothing to say removes the field", func(t *testing.T) {
		t.Parallel()
		h := http.Header{wire.HeaderRetryContext: {"attempt=9"}}
		wire.RetryContext{}.Set(h)
		if len(h) != 0 {
			t.Errorf("%q is left", h)
		}
	})

	t.Run("W4 what a reader would refuse is left out", func(t *testing.T) {
		t.Parallel()
		h := http.Header{}
		wire.RetryContext{Attempt: 2, Max: -1, Layer: "caf\u00e9\r\nX-Evil: 1"}.Set(h)
		if got := h.Get(wire.HeaderRetryContext); got != "attempt=2" {
			t.Errorf("the field is %q", got)
		}
		wire.RetryContext{Attempt: 2, Layer: strings.Repeat("a", wire.MaxLayerLen+1)}.Set(h)
		if got := h.Get(wire.HeaderRetryContext); got != "attempt=2" {
			t.Errorf("the field is %q", got)
		}
	})
}

func FuzzRetryContext(f *testing.F) {
	for _, row := range vectors[[]retryContextVector](f, "retry-context.json") {
		f.Add(strings.Join(row.Lines, ", "))
	}
	f.Fuzz(func(t *testing.T, line string) {
		c := wire.ReadRetryContext(http.Header{wire.HeaderRetryContext: {line}})
		if c.Attempt < 0 || c.Max < 0 || len(c.Layer) > wire.MaxLayerLen {
			t.Fatalf("%q says %+v", line, c)
		}
		if _, err := httpsfv.UnmarshalDictionary([]string{line}); err != nil && c != (wire.RetryContext{}) {
			t.Fatalf("%q is no dictionary and says %+v", line, c)
		}
		h := http.Header{}
		c.Set(h)
		if again := wire.ReadRetryContext(h); !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v is written as %q and read as %+v", c, h[wire.HeaderRetryContext], again)
		}
	})
}

func ExampleRetryContext() {
	h := http.Header{}
	wire.RetryContext{Attempt: 2, Max: 4, Layer: "checkout"}.Set(h)
	fmt.Println(h.Get(wire.HeaderRetryContext))
	wire.RetryContext{Processed: new(bool)}.Set(h)
	fmt.Println(h.Get(wire.HeaderRetryContext))
	// Output:
	// attempt=2, max=4, layer="checkout"
	// processed=?0
}
