// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
)

func TestInteger(t *testing.T) {
	t.Parallel()

	accepted := []struct {
		text string
		want Integer
	}{
		{"1200", 1200},
		{"1200.0", 1200},
		{"1.2e3", 1200},
		{"1.2E+3", 1200},
		{"12000e-1", 1200},
		{"0", 0},
		{"-0", 0},
		{"0.000", 0},
		{"0e999999999999999999999", 0},
		{"-0.0e-999999999999999999999", 0},
		{"9007199254740992", 9007199254740992},
		{"9007199254740993", 9007199254740993},
		{"9223372036854775807", math.MaxInt64},
		{"-9223372036854775808", math.MinInt64},
		{"-9.223372036854775808e18", math.MinInt64},
		{"1e18", 1e18},
		{"0.00001e5", 1},
	}
	for _, c := range accepted {
		t.Run("accepts "+c.text, func(t *testing.T) {
			t.Parallel()
			var got Integer
			if err := json.Unmarshal([]byte(c.text), &got); err != nil || got != c.want {
				t.Errorf("got %d, %v; want %d", got, err, c.want)
			}
		})
	}

	refused := []string{
		"1200.5", "1e-1", "0.1", "-1.00000000000000000000001",
		"9223372036854775808", "-9223372036854775809", "1e19", "-1e19", "1e999999999999999999999",
		"1e-999999999999999999999", "null", `"1200"`, "true", "[]", "{}", "", "-", ".", "1e", "1e+", "0x10", "1_000", "Inf", "NaN",
	}
	for _, text := range refused {
		t.Run("refuses "+text, func(t *testing.T) {
			t.Parallel()
			got := Integer(7)
			err := got.UnmarshalJSON([]byte(text))
			if reprise.CodeOf(err) != reprise.CodeInvalid {
				t.Errorf("got %d, %v; want code invalid", got, err)
			}
			if got != 7 {
				t.Errorf("a refused number left %d behind", got)
			}
		})
	}
}

// FuzzInteger compares with exact rational arithmetic.
func FuzzInteger(f *testing.F) {
	for _, seed := range []string{"1200", "1.2e3", "-0.0", "12000e-1", "9223372036854775807", "-9223372036854775808", "1e18", "1.5", "1e400"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || len(text) > 64 || strings.Trim(text, " \t\r\n") != text {
			return
		}
		got, err := parseInteger(text)
		_, exponent, _ := cutAny(text, "eE")
		if len(exponent) > 4 {
			return // math/big would need the memory of the number itself.
		}
		exact, isNumber := new(big.Rat).SetString(text)
		want := isNumber && text[0] != '"' && exact.IsInt() && exact.Num().IsInt64()
		if (err == nil) != want {
			t.Fatalf("%q: got %d, %v; exact value %v", text, got, err, exact)
		}
		if want && exact.Num().Int64() != got {
			t.Fatalf("%q: got %d, want %v", text, got, exact.Num())
		}
	})
}
