// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNewKey(t *testing.T) {
	t.Parallel()

	t.Run("K5 is a new UUIDv7 each time", func(t *testing.T) {
		t.Parallel()
		form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
		seen := map[Key]bool{}
		for range 10_000 {
			k := NewKey()
			if seen[k] || !form.MatchString(string(k)) || k.Validate() != nil {
				t.Fatalf("%q is not a new UUIDv7", k)
			}
			seen[k] = true
		}
	})

	t.Run("K8 carries its time to the millisecond", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			at := time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(t, "ms")).UTC()
			k := newKeyAt(at.Add(999 * time.Microsecond))
			for _, k := range []Key{k, Key(strings.ToUpper(string(k)))} {
				if got, ok := k.MintedAt(); !ok || !got.Equal(at) {
					t.Fatalf("%s was minted at %v, %v; want %v", k, got, ok, at)
				}
			}
		})
	})
}

func TestKeyMintedAt(t *testing.T) {
	t.Parallel()
	// RFC 9562 appendix A.6.
	if at, ok := Key("017F22E2-79B0-7CC3-98C4-DC0C0C07398F").MintedAt(); !ok || !at.Equal(time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC)) {
		t.Errorf("the example of RFC 9562 was minted at %v, %v", at, ok)
	}
	for name, k := range map[string]Key{
		"empty":                       "",
		"a word":                      "abc",
		"UUIDv4":                      "919108f7-52d1-4320-9bac-f847db4148a8",
		"UUIDv7 of another variant":   "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",
		"no dashes":                   "017f22e279b07cc398c4dc0c0c07398f",
		"dashes in odd places":        "017f22e2--79b0-7cc3-98c4-dc0c0c0739-",
		"more dashes":                 "017f22e2-79b0-7cc3-98c4-dc0c-0c07-98",
		"a digit that is none":        "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
		"in braces":                   "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
		"urn":                         "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
		"a blank before":              " 017f22e2-79b0-7cc3-98c4-dc0c0c07398",
		"one digit too many":          "017f22e2-79b0-7cc3-98c4-dc0c0c07398ff",
		"digits of another script":    "٠17f22e2-79b0-7cc3-98c4-dc0c0c07398",
		"dash where a digit belongs":  "017f22e2-79b0-7cc3-98c4-dc0c0c0739-f",
		"digit where a dash belongs":  "017f22e2079b0-7cc3-98c4-dc0c0c07398f",
		"zero UUID":                   "00000000-0000-0000-0000-000000000000",
		"all ones":                    "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"derived":                     Intent{Caller: "a", Operation: "b", Key: "c"}.Derive("d"),
		"the version in another case": "017f22e2-79b0-Zcc3-98c4-dc0c0c07398f",
	} {
		if at, ok := k.MintedAt(); ok || !at.IsZero() {
			t.Errorf("%s: %q was minted at %v", name, k, at)
		}
	}
}

func TestKeyValidate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		key  Key
		code Code
	}{
		"one byte":        {"1", ""},
		"a space":         {" ", ""},
		"the last byte":   {"~", ""},
		"quotes":          {`a"\b`, ""},
		"255 bytes":       {Key(strings.Repeat("k", MaxKeyLen)), ""},
		"nothing":         {"", CodeKeyMissing},
		"256 bytes":       {Key(strings.Repeat("k", MaxKeyLen+1)), CodeKeyInvalid},
		"NUL":             {"a\x00", CodeKeyInvalid},
		"a line feed":     {"a\n", CodeKeyInvalid},
		"DEL":             {"a\x7f", CodeKeyInvalid},
		"UTF-8":           {"caf\u00e9", CodeKeyInvalid},
		"a byte over 127": {"\xff", CodeKeyInvalid},
	} {
		t.Run("K1 "+name, func(t *testing.T) {
			t.Parallel()
			err := row.key.Validate()
			if CodeOf(err) != row.code {
				t.Errorf("%q: %v", row.key, err)
			}
			if err != nil && OutcomeOf(err) != NotProcessed {
				t.Errorf("the outcome is %v", OutcomeOf(err))
			}
		})
	}
}

func FuzzKeyMintedAt(f *testing.F) {
	f.Add("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")
	f.Add("017f22e2--79b0-7cc3-98c4-dc0c0c0739-")
	f.Add("919108f7-52d1-4320-9bac-f847db4148a8")
	f.Fuzz(func(t *testing.T, s string) {
		at, ok := Key(s).MintedAt()
		u, isUUID := parseUUID(s)
		if isUUID && formatUUID(u, u[6]>>4) != strings.ToLower(s) && u[8]>>6 == 0b10 {
			t.Fatalf("%q is read as %x", s, u)
		}
		if !ok {
			return
		}
		if !isUUID || at.UnixMilli() < 0 || at.UnixMilli() >= 1<<48 {
			t.Fatalf("%q was minted at %v", s, at)
		}
	})
}
