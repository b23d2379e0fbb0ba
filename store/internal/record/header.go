// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// EncodeHeader writes header fields as a JSON object, in the order of their
// names. A field value is bytes and not text, so each byte becomes the character
// of that number (ISO 8859-1), and comes back as it was (rule L4). No header is
// "", which a driver stores as NULL.
func EncodeHeader(header map[string][]string) string {
	return encode(header, func(b []byte, values []string) []byte {
		b = append(b, '[')
		for i, v := range values {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendBytes(b, v)
		}
		return append(b, ']')
	})
}

// DecodeHeader is the inverse of EncodeHeader.
func DecodeHeader(stored string) (map[string][]string, error) {
	return decode(stored, func(values []string) (_ []string, err error) {
		for i, v := range values {
			if values[i], err = narrow(v); err != nil {
				return nil, err
			}
		}
		return values, nil
	})
}

// EncodeAttributes is EncodeHeader for fields of one value, as a message has.
func EncodeAttributes(header map[string]string) string {
	return encode(header, appendBytes)
}

// DecodeAttributes is the inverse of EncodeAttributes.
func DecodeAttributes(stored string) (map[string]string, error) {
	return decode(stored, narrow)
}

func encode[V any](header map[string]V, appendValue func([]byte, V) []byte) string {
	if header == nil {
		return ""
	}
	names := make([]string, 0, 8)
	names = slices.AppendSeq(names, maps.Keys(header))
	slices.Sort(names)
	b := make([]byte, 0, 256)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendBytes(b, name), ':')
		b = appendValue(b, header[name])
	}
	return string(append(b, '}'))
}

func decode[V any](stored string, narrowed func(V) (V, error)) (map[string]V, error) {
	if stored == "" {
		return nil, nil
	}
	var wide map[string]V
	if err := json.Unmarshal([]byte(stored), &wide); err != nil {
		return nil, err
	}
	header := make(map[string]V, len(wide))
	for name, value := range wide {
		name, err := narrow(name)
		if err != nil {
			return nil, err
		}
		if header[name], err = narrowed(value); err != nil {
			return nil, err
		}
	}
	return header, nil
}

// appendBytes appends s as a JSON string with a character for each byte.
func appendBytes(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, widen(s)) // fails for text that isn't UTF-8 only
	return b
}

// widen makes each byte the character of its number. ASCII stays as it is.
func widen(s string) string {
	if isASCII(s) {
		return s
	}
	b := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		b = utf8.AppendRune(b, rune(s[i]))
	}
	return string(b)
}

// narrow is the inverse of widen.
func narrow(s string) (string, error) {
	if isASCII(s) {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return "", fmt.Errorf("%q in a header field, where each character stands for a byte", r)
		}
		b = append(b, byte(r))
	}
	return string(b), nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
