// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Integer is an int64 read from a JSON number by its value, not by its
// spelling: 1200, 1200.0 and 1.2e3 are the same Integer, and 1200.5 and null
// are refused. Arithmetic is exact; no float64 is in between, so that
// 9007199254740993 stays what it is (rule F3).
//
// Use it for the fields of what DecodeJSON reads: a plain int64 accepts plain
// digits only, although the ledger takes the three spellings for one request.
type Integer int64

// UnmarshalJSON implements the Unmarshaler of encoding/json and its successors.
// The error is an *reprise.Error with code "invalid".
func (n *Integer) UnmarshalJSON(number []byte) error {
	v, err := parseInteger(string(number))
	if err != nil {
		return err
	}
	*n = Integer(v)
	return nil
}

var (
	errNotWhole   = Invalid("must be a whole number")
	errOutOfRange = Invalid("must fit into 64 bits")
)

// maxInt64Digits is the number of digits of the largest int64.
const maxInt64Digits = 19

// parseInteger reads s, which is any JSON value.
func parseInteger(s string) (int64, error) {
	digits, negative := strings.CutPrefix(s, "-")
	digits, exponent, hasExponent := cutAny(digits, "eE")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errNotWhole
	}

	scale := 0
	if hasExponent {
		var err error
		scale, err = strconv.Atoi(exponent)
		if errors.Is(err, strconv.ErrSyntax) {
			return 0, errNotWhole
		}
		// Atoi saturates, and so far out only zero is an integer.
		scale = min(max(scale, math.MinInt32), math.MaxInt32)
	}
	scale -= len(fraction)

	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return 0, nil
	}
	significant := strings.TrimRight(digits, "0")
	scale += len(digits) - len(significant)
	if scale < 0 {
		return 0, errNotWhole
	}
	if len(significant)+scale > maxInt64Digits {
		return 0, errOutOfRange
	}

	text := significant + strings.Repeat("0", scale)
	if negative {
		text = "-" + text
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errOutOfRange
	}
	return v, nil
}

// cutAny cuts s around the first of the bytes in chars.
func cutAny(s, chars string) (before, after string, found bool) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
