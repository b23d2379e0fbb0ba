// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/retry"
)

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("the zero value is sound", func(t *testing.T) {
		t.Parallel()
		p, err := retry.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		o := p.Options()
		if o.MaxAttempts != 4 || o.Base != 50*time.Millisecond || o.Cap != 20*time.Second ||
			o.MinAttempt != 10*time.Millisecond || o.MaxWait != 5*time.Minute || o.Safety != contract.Unsafe ||
			o.Classify == nil || o.Rand == nil || o.Deadline != 0 || o.AttemptTimeout != 0 {
			t.Errorf("defaults are %+v", o)
		}
	})

	t.Run("a long Base raises the default Cap", func(t *testing.T) {
		t.Parallel()
		p, err := retry.New(&retry.Options{Base: time.Minute})
		if err != nil || p.Options().Cap != time.Minute {
			t.Errorf("%+v, %v", p, err)
		}
	})

	// go-resty/resty#392: a negative number of attempts gave (nil, nil).
	for _, row := range []struct {
		name    string
		o       retry.Options
		mention string
	}{
		{"negative attempts", retry.Options{MaxAttempts: -1}, "MaxAttempts is -1"},
		{"negative base", retry.Options{Base: -1}, "Base is -1ns"},
		{"negative cap", retry.Options{Cap: -time.Second}, "Cap is -1s"},
		{"negative deadline", retry.Options{Deadline: -1}, "Deadline"},
		{"negative attempt time-out", retry.Options{AttemptTimeout: -1}, "AttemptTimeout"},
		{"negative least attempt", retry.Options{MinAttempt: -1}, "MinAttempt"},
		{"negative longest wait", retry.Options{MaxWait: -1}, "MaxWait"},
		{"cap below base", retry.Options{Base: time.Second, Cap: time.Millisecond}, "shorter than Base"},
		{"attempt longer than the call", retry.Options{Deadline: time.Second, AttemptTimeout: time.Minute}, "longer than Deadline"},
		{"no room for an attempt", retry.Options{Deadline: time.Millisecond}, "no attempt could begin"},
		{"unknown safety", retry.Options{Safety: "sage"}, `"sage"`},
	} {
		t.Run("refuses "+row.name, func(t *testing.T) {
			t.Parallel()
			p, err := retry.New(&row.o)
			if err == nil || p != nil || !strings.Contains(err.Error(), row.mention) {
				t.Errorf("New(%+v) = %v, %v; want an error with %q", row.o, p, err, row.mention)
			}
		})
	}

	t.Run("presets are valid and stay as they are", func(t *testing.T) {
		t.Parallel()
		for _, p := range []*retry.Policy{retry.Interactive(), retry.Background(), nil} {
			o := p.Options()
			if _, err := retry.New(&o); err != nil {
				t.Errorf("%+v: %v", o, err)
			}
			o.MaxAttempts = 1
			if p.Options().MaxAttempts == 1 {
				t.Error("changing the options changed the preset")
			}
		}
	})
}
