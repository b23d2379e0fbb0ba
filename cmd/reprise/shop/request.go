// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/ledgerhttp"
)

// The rules for what a request may say. They are checked before the ledger is
// asked, so a request that breaks one never burns its key.

// maxText is the longest text, in characters.
const maxText = 255

// isText reports whether every database can hold v as a text, or be asked for it.
func isText(v string) bool { return utf8.ValidString(v) && !strings.Contains(v, "\x00") }

func text(name, v string) error {
	switch {
	case v == "":
		return ledgerhttp.Invalid("%s must be a text that is not empty", name)
	case utf8.RuneCountInString(v) > maxText:
		return ledgerhttp.Invalid("%s must have at most %d characters", name, maxText)
	case strings.ContainsFunc(v, unicode.IsControl):
		return ledgerhttp.Invalid("%s must have no control characters", name)
	}
	return nil
}

func positive(name string, v ledgerhttp.Integer) error {
	if v < 1 {
		return ledgerhttp.Invalid("%s must be a whole number of at least 1", name)
	}
	return nil
}

func currency(v string) error {
	if len(v) != 3 || strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ledgerhttp.Invalid("currency must be three capital letters, such as EUR")
	}
	return nil
}

// noQuery refuses query parameters where there are none: one that is ignored
// here and obeyed elsewhere is how two systems disagree about what was asked.
func noQuery(r *ledgerhttp.Request) error {
	if r.URL.RawQuery != "" {
		return ledgerhttp.Invalid("this resource has no query parameters")
	}
	return nil
}

func noBody(r *ledgerhttp.Request) error {
	if len(r.Body) > 0 {
		return ledgerhttp.Invalid("this request has no body")
	}
	return nil
}
