// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIntentValidate(t *testing.T) {
	t.Parallel()
	valid := Intent{Caller: Unscoped, Operation: "create-order", Key: "k", Fingerprint: Fingerprint{FingerprintVersion}}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(i *Intent)
		want   string
	}{
		"K4 no caller":      {func(i *Intent) { i.Caller = "" }, "reprise.Unscoped"},
		"K3 no operation":   {func(i *Intent) { i.Operation = "" }, "no operation"},
		"F1 no fingerprint": {func(i *Intent) { i.Fingerprint = Fingerprint{} }, "no fingerprint"},
		"K1 no key":         {func(i *Intent) { i.Key = "" }, "at least one byte"},
		"K1 a bad key":      {func(i *Intent) { i.Key = "a\x00" }, "not printable ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := valid
			row.change(&i)
			if err := i.Validate(); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v does not say %q", err, row.want)
			}
		})
	}
}

func TestIntentDerive(t *testing.T) {
	t.Parallel()

	t.Run("K6 is the same for ever", func(t *testing.T) {
		t.Parallel()
		// This value must never change: downstream systems remember it.
		got := Intent{Caller: "alice", Operation: "pay", Key: "k1"}.Derive("charge")
		if want := Key("f710e369-6eaa-89d0-ab88-685db224aaf0"); got != want {
			t.Errorf("derived %s; want %s", got, want)
		}
	})

	t.Run("K6 is a UUIDv8 and a valid key", func(t *testing.T) {
		t.Parallel()
		form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
		rapid.Check(t, func(t *rapid.T) {
			i := drawIntent(t, "i")
			k := i.Derive(rapid.String().Draw(t, "step"))
			if !form.MatchString(string(k)) || k.Validate() != nil {
				t.Fatalf("derived %q", k)
			}
		})
	})

	t.Run("K6 depends on the triple and the step and on nothing else", func(t *testing.T) {
		t.Parallel()
		step := rapid.SampledFrom([]string{"", "a", "b", "ab"})
		rapid.Check(t, func(t *rapid.T) {
			i, j := drawIntent(t, "i"), drawIntent(t, "j")
			s, u := step.Draw(t, "s"), step.Draw(t, "u")
			i.Fingerprint, j.Fingerprint = Fingerprint{1, 2}, Fingerprint{1, 3}
			same := i.Caller == j.Caller && i.Operation == j.Operation && i.Key == j.Key && s == u
			if (i.Derive(s) == j.Derive(u)) != same {
				t.Fatalf("%+v/%q and %+v/%q", i, s, j, u)
			}
		})
	})
}

func TestIntentID(t *testing.T) {
	t.Parallel()

	t.Run("K3 tells triples apart, also where they run into each other", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			i, j := drawIntent(t, "i"), drawIntent(t, "j")
			same := i.Caller == j.Caller && i.Operation == j.Operation && i.Key == j.Key
			if (i.ID() == j.ID()) != same {
				t.Fatalf("%+v and %+v", i, j)
			}
		})
	})

	t.Run("K2 tells case apart, also in a UUIDv7", func(t *testing.T) {
		t.Parallel()
		k := NewKey()
		i := Intent{Caller: "a", Operation: "b", Key: k}
		j := Intent{Caller: "a", Operation: "b", Key: Key(strings.ToUpper(string(k)))}
		if i.ID() == j.ID() {
			t.Error("two keys have one id")
		}
	})

	t.Run("is ordered by the time of UUIDv7 keys", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			ms := rapid.Int64Range(0, 1<<48-1)
			a, b := ms.Draw(t, "a"), ms.Draw(t, "b")
			x := Intent{Caller: "a", Operation: "o", Key: newKeyAt(time.UnixMilli(a))}.ID()
			y := Intent{Caller: "b", Operation: "o", Key: newKeyAt(time.UnixMilli(b))}.ID()
			if a != b && bytes.Compare(x[:], y[:]) != cmp.Compare(a, b) {
				t.Fatalf("%s and %s are in the wrong order", x, y)
			}
		})
	})
}

// drawIntent draws from so few letters that neighbours such as ("ab", "c") and
// ("a", "bc") are common.
func drawIntent(t *rapid.T, label string) Intent {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 0, 2, -1)
	return Intent{
		Caller:    Caller(text.Draw(t, label+".caller")),
		Operation: Operation(text.Draw(t, label+".operation")),
		Key:       Key(text.Draw(t, label+".key")),
	}
}

func BenchmarkIntentID(b *testing.B) {
	i := Intent{Caller: "alice", Operation: "create-order", Key: NewKey()}
	b.ReportAllocs()
	for b.Loop() {
		if i.ID() == (IntentID{}) {
			b.Fatal("no id")
		}
	}
}
