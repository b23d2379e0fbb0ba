// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/reprise-go/reprise"
)

// ReadKey returns the idempotency key of a request (rule K7).
//
// Two forms are read, and `"abc"` and `abc` are one key: a string of RFC 9651
// section 3.3.3 in quotes, which is what the specification of the field demands,
// and the bare value that most clients send, 1 to 255 bytes of '!' to '~'
// without `"`, `,`, `;` and `\`. Optional white space around the value does not
// belong to it (RFC 9110 section 5.5).
//
// The error is an *reprise.Error: CodeKeyMissing when there is no such field,
// and CodeKeyInvalid when there are several, when the value is empty, a list, or
// carries parameters, or when the key is not one (rule K1). Whether a key is too
// old or minted in the future is for the ledger to say.
func ReadKey(h http.Header) (reprise.Key, error) {
	lines := h[HeaderKey]
	switch {
	case len(lines) == 0:
		return "", &reprise.Error{
			Code: reprise.CodeKeyMissing, Outcome: reprise.NotProcessed,
			Detail: "this operation needs the " + HeaderKey + " field; send a new UUID for each thing that is to happen once",
		}
	case len(lines) > 1:
		return "", invalidKey("the "+HeaderKey+" field is given %d times; send it once", len(lines))
	}
	value := strings.Trim(lines[0], " \t")
	if value == "" {
		return "", invalidKey("the " + HeaderKey + " field is empty")
	}
	if value[0] == '"' {
		return quotedKey(value)
	}
	return bareKey(value)
}

// bareKey reads the form without quotes. The four bytes it refuses would make a
// list, a parameter or half a string of the value.
func bareKey(value string) (reprise.Key, error) {
	for i := range len(value) {
		switch c := value[i]; {
		case c == ',':
			return "", invalidKey("the " + HeaderKey + " field holds a list; send one key")
		case c <= ' ' || c > '~' || c == '"' || c == ';' || c == '\\':
			return "", invalidKey("byte %d of the key cannot stand in a key without quotes; "+
				`send printable ASCII without space, '"', ',', ';' and '\', or a string in quotes`, i+1)
		}
	}
	return checkedKey(value)
}

// quotedKey reads a structured-field string. A key without escapes, which is
// every key that is made by a program, is returned without copying it.
func quotedKey(value string) (reprise.Key, error) {
	if inner := value[1:]; len(inner) > 0 && plainString(inner[:len(inner)-1]) && inner[len(inner)-1] == '"' {
		return checkedKey(inner[:len(inner)-1])
	}
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", invalidKey("the " + HeaderKey + " field is not one string of RFC 9651: " +
			`it needs a closing quote, only printable ASCII, and '\' before '"' and '\' alone`)
	}
	if len(item.Params.Names()) > 0 {
		return "", invalidKey("the " + HeaderKey + " field has parameters after the key; none are defined, so send the key alone")
	}
	s, ok := item.Value.(string)
	if !ok { // An item that starts with a quote is a string.
		return "", invalidKey("the " + HeaderKey + " field is not a string")
	}
	return checkedKey(s)
}

// plainString reports whether s can stand between the quotes of a
// structured-field string as it is.
func plainString(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func checkedKey(s string) (reprise.Key, error) {
	if s == "" { // Validate would call an empty key missing; here it was sent.
		return "", invalidKey("the key between the quotes is empty")
	}
	k := reprise.Key(s)
	if err := k.Validate(); err != nil {
		return "", err
	}
	return k, nil
}

func invalidKey(format string, args ...any) error {
	return &reprise.Error{
		Code: reprise.CodeKeyInvalid, Outcome: reprise.NotProcessed,
		Detail: fmt.Sprintf(format, args...),
	}
}

// SetKey sets the idempotency key of a request, as a structured-field string in
// quotes (rule K7).
//
// A key that is not valid is written all the same: net/http or the server then
// refuses the request, while leaving the field out would send it unprotected.
func SetKey(h http.Header, k reprise.Key) {
	h[HeaderKey] = []string{quoteString(string(k))}
}

// quoteString writes s as a string of RFC 9651 section 4.1.6.
func quoteString(s string) string {
	if plainString(s) {
		return `"` + s + `"`
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
