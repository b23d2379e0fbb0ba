// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deeply a JSON body may nest objects and arrays.
const MaxDepth = 128

// canonicalizer makes the canonical form of JSON texts (rule F3), which is a JSON
// text itself, and its own canonical form:
//
//   - no white space;
//   - the members of an object sorted by the bytes of their decoded names;
//   - strings escaped as in RFC 8785 section 3.2.2.2;
//   - numbers as exact decimals, see appendNumber;
//   - without the top-level members that are volatile.
//
// It refuses what two readers could understand differently: invalid UTF-8, lone
// surrogates, a member given twice, and anything after the text.
type canonicalizer struct {
	src      bytes.Buffer
	dec      jsontext.Decoder
	volatile []string

	// out is what is appended to. names and members are stacks that hold the open
	// objects, so that an object is sorted when it ends.
	out     []byte
	names   []byte
	members []member
	scratch []byte
}

// append appends the canonical form of text to dst. It keeps neither.
func (c *canonicalizer) append(dst, text []byte, volatile []string) ([]byte, error) {
	c.src = *bytes.NewBuffer(text)
	c.dec.Reset(&c.src, jsontext.AllowDuplicateNames(true)) // Sorting finds them.
	c.out, c.volatile = dst, volatile
	c.names, c.members = c.names[:0], c.members[:0]
	err := c.value(0)
	if err == nil {
		if _, end := c.dec.ReadToken(); !errors.Is(end, io.EOF) {
			err = errTrailing
		}
	}
	if err != nil {
		err = c.refuse(err)
	}
	out := c.out
	c.src, c.out, c.volatile = bytes.Buffer{}, nil, nil
	c.dec.Reset(&c.src)
	clear(c.names[:cap(c.names)])
	clear(c.scratch[:cap(c.scratch)])
	return out, err
}

// size is how much memory c keeps between two uses.
func (c *canonicalizer) size() int {
	return cap(c.names) + cap(c.scratch) + 32*cap(c.members)
}

// member is one member of an open object: where its name stands in names, and
// where its canonical form, with the name and the colon, stands in out.
type member struct {
	name, nameEnd int
	form, formEnd int
}

var (
	errDepth     = errors.New("nested too deeply")
	errDuplicate = errors.New("member given twice")
	errExponent  = errors.New("exponent too long")
	errTrailing  = errors.New("something after the text")
)

func (c *canonicalizer) refuse(err error) error {
	at := c.dec.InputOffset()
	switch {
	case errors.Is(err, errDepth):
		return invalid("the JSON body nests more than %d levels, at byte %d", MaxDepth, at)
	case errors.Is(err, errDuplicate):
		return invalid("the JSON body has an object with a member given twice, before byte %d", at)
	case errors.Is(err, errExponent):
		return invalid("the JSON body has a number with an exponent of more than %d digits, before byte %d", maxExponentDigits, at)
	case errors.Is(err, errTrailing):
		return invalid("the body has something after its JSON text, at byte %d", at)
	}
	return invalid("the body is not valid JSON in UTF-8, near byte %d", at+1)
}

func (c *canonicalizer) value(depth int) error {
	switch c.dec.PeekKind() {
	case jsontext.KindBeginObject:
		return c.object(depth + 1)
	case jsontext.KindBeginArray:
		return c.array(depth + 1)
	case jsontext.KindString:
		raw, err := c.dec.ReadValue()
		if err != nil {
			return err
		}
		return c.string(raw)
	case jsontext.KindNumber:
		raw, err := c.dec.ReadValue()
		if err != nil {
			return err
		}
		c.out, err = appendNumber(c.out, raw)
		return err
	default: // A literal, or an error.
		raw, err := c.dec.ReadValue()
		c.out = append(c.out, raw...)
		return err
	}
}

// string appends a string. Without a backslash it is canonical as it stands:
// JSON allows neither quotes nor control characters in it then.
func (c *canonicalizer) string(raw []byte) error {
	if bytes.IndexByte(raw, '\\') < 0 {
		c.out = append(c.out, raw...)
		return nil
	}
	var err error
	if c.scratch, err = jsontext.AppendUnquote(c.scratch[:0], raw); err != nil {
		return err
	}
	c.out, err = jsontext.AppendQuote(c.out, c.scratch)
	return err
}

func (c *canonicalizer) array(depth int) error {
	if depth > MaxDepth {
		return errDepth
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	c.out = append(c.out, '[')
	for n := 0; c.dec.PeekKind() != jsontext.KindEndArray; n++ {
		if n > 0 {
			c.out = append(c.out, ',')
		}
		if err := c.value(depth); err != nil {
			return err
		}
	}
	c.out = append(c.out, ']')
	_, err := c.dec.ReadToken()
	return err
}

func (c *canonicalizer) object(depth int) error {
	if depth > MaxDepth {
		return errDepth
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	start, firstName, firstMember := len(c.out), len(c.names), len(c.members)
	for c.dec.PeekKind() != jsontext.KindEndObject {
		if err := c.member(depth); err != nil {
			return err
		}
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	members := c.members[firstMember:]
	slices.SortFunc(members, func(a, b member) int {
		return bytes.Compare(c.names[a.name:a.nameEnd], c.names[b.name:b.nameEnd])
	})
	for i := 1; i < len(members); i++ {
		a, b := members[i-1], members[i]
		if bytes.Equal(c.names[a.name:a.nameEnd], c.names[b.name:b.nameEnd]) {
			return errDuplicate
		}
	}
	c.scratch = append(c.scratch[:0], '{')
	for _, m := range members {
		if depth == 1 && c.isVolatile(c.names[m.name:m.nameEnd]) {
			continue
		}
		if len(c.scratch) > 1 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, c.out[m.form:m.formEnd]...)
	}
	c.scratch = append(c.scratch, '}')
	c.out = append(c.out[:start], c.scratch...)
	c.names, c.members = c.names[:firstName], c.members[:firstMember]
	return nil
}

func (c *canonicalizer) member(depth int) error {
	m := member{name: len(c.names), form: len(c.out)}
	raw, err := c.dec.ReadValue()
	if err != nil {
		return err
	}
	if c.names, err = jsontext.AppendUnquote(c.names, raw); err != nil {
		return err
	}
	m.nameEnd = len(c.names)
	if err := c.string(raw); err != nil {
		return err
	}
	c.out = append(c.out, ':')
	if err := c.value(depth); err != nil {
		return err
	}
	m.formEnd = len(c.out)
	c.members = append(c.members, m)
	return nil
}

func (c *canonicalizer) isVolatile(name []byte) bool {
	return slices.ContainsFunc(c.volatile, func(v string) bool { return v == string(name) })
}

// maxExponentDigits keeps the arithmetic of exponents within 64 bits. It bounds
// the exponent as it is written and in canonical form.
const (
	maxExponentDigits = 18
	exponentLimit     = 1_000_000_000_000_000_000
)

// appendNumber appends the canonical form of a JSON number: "0", or an optional
// minus sign, the digits without zeros at either end, "e", and the power of ten
// that they are multiplied with. 1, 1.0 and 10e-1 are "1e0", and 12.50 is
// "125e-1". The value itself is never computed, so that 1e999999999 costs no
// more than its text.
func appendNumber(dst, raw []byte) ([]byte, error) {
	text := raw
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	mantissa, exponentText := text, []byte(nil)
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponentText = text[:i], text[i+1:]
	}
	whole, fraction := mantissa, []byte(nil)
	if i := bytes.IndexByte(mantissa, '.'); i >= 0 {
		whole, fraction = mantissa[:i], mantissa[i+1:]
	}
	start := len(dst)
	if negative {
		dst = append(dst, '-')
	}
	first := len(dst)
	dst = append(append(dst, whole...), fraction...)
	digits := bytes.Trim(dst[first:], "0")
	if len(digits) == 0 {
		return append(dst[:start], '0'), nil
	}
	exponent, err := parseExponent(exponentText)
	if err != nil {
		return dst, err
	}
	exponent += int64(len(dst)-first-len(bytes.TrimRight(dst[first:], "0"))) - int64(len(fraction))
	if exponent <= -exponentLimit || exponent >= exponentLimit {
		return dst, errExponent
	}
	dst = dst[:first+copy(dst[first:], digits)]
	dst = append(dst, 'e')
	return strconv.AppendInt(dst, exponent, 10), nil
}

func parseExponent(text []byte) (int64, error) {
	if len(text) == 0 {
		return 0, nil
	}
	negative := text[0] == '-'
	text = bytes.TrimLeft(bytes.TrimLeft(text, "+-"), "0")
	if len(text) > maxExponentDigits {
		return 0, errExponent
	}
	var n int64
	for _, d := range text {
		n = n*10 + int64(d-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}
