// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"cmp"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/reprise-go/reprise"
)

// DecodeJSON reads the body of r, one JSON object, into a T. It is strict,
// because a member that one reader ignores and another one obeys is how two
// systems come to disagree about what was asked: unknown and repeated members,
// null for a member that can't be absent, invalid UTF-8, content after the
// object, another media type and a content coding are refused. Nesting is
// limited. Member names are those of T's json tags, compared byte by byte.
//
// A member that is missing leaves its field as it was; whether that is valid is
// for the caller to say. Every error is an *reprise.Error with code "invalid"
// whose detail names the member. An *reprise.Error from an UnmarshalJSON of
// T's fields continues that sentence, as in "must be a currency".
//
// T is read as version 2 of encoding/json does (github.com/go-json-experiment/json):
// an array must have the length of its Go array, a []byte is base64 text only, and
// a time.Duration has no form of its own.
func DecodeJSON[T any](r *Request) (T, error) {
	var v T
	if err := checkMediaType(r.Header); err != nil {
		return v, err
	}
	if !utf8.Valid(r.Body) {
		return v, Invalid("the body is not valid UTF-8")
	}
	switch kind := firstKind(r.Body); kind {
	case '{':
	case 0:
		return v, Invalid("the body is empty; it must be a JSON object")
	default:
		return v, Invalid("the body must be a JSON object")
	}
	if err := json.Unmarshal(r.Body, &v, strictJSON); err != nil {
		var none T
		return none, Invalid("%s", explainJSON(err))
	}
	return v, nil
}

// strictJSON holds what is not already the default of the decoder, which
// refuses duplicate members, invalid UTF-8 and a nesting of more than 10,000.
var strictJSON = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.MatchCaseInsensitiveNames(false),
	json.WithUnmarshalers(json.UnmarshalFromFunc(refuseNull)),
)

var errNull = errors.New("null")

// refuseNull refuses null where Go has no way to keep it, instead of making a
// zero of it: an amount of null is not an amount of 0.
func refuseNull(d *jsontext.Decoder, v any) error {
	if d.PeekKind() != 'n' {
		return errors.ErrUnsupported
	}
	if slices.Contains(nullable, reflect.TypeOf(v).Elem().Kind()) {
		return errors.ErrUnsupported
	}
	return errNull
}

var nullable = []reflect.Kind{reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice}

func checkMediaType(h http.Header) error {
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return Invalid("the body has a Content-Encoding; send it without")
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return Invalid("the Content-Type must be application/json")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return Invalid("the charset must be utf-8")
	}
	return nil
}

// firstKind returns the first byte of b that is not JSON white space, or 0.
func firstKind(b []byte) byte {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// explainJSON says in a sentence what is wrong. It never repeats values, only
// names and positions.
func explainJSON(err error) string {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return explainMember(e)
	}
	e, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok:
		return "the body is not valid JSON"
	case errors.Is(e, jsontext.ErrDuplicateName):
		return "the member " + memberName(e.JSONPointer) + " is given twice"
	}
	return "the body is not valid JSON at byte " + strconv.FormatInt(e.ByteOffset+1, 10)
}

func explainMember(e *json.SemanticError) string {
	member := "the member " + memberName(e.JSONPointer)
	if own, ok := errors.AsType[*reprise.Error](e.Err); ok {
		return member + " " + own.Detail
	}
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return member + " is not known"
	case errors.Is(e.Err, errNull):
		return member + " must not be null"
	case errors.Is(e.Err, strconv.ErrRange):
		return member + " is out of range"
	case e.GoType == nil:
		return member + " is not valid"
	}
	return member + " must be " + cmp.Or(kindNames[e.GoType.Kind()], "of another type")
}

const wholeNumber = "a whole number"

var kindNames = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Bool: "true or false",
	reflect.Int: wholeNumber, reflect.Int8: wholeNumber, reflect.Int16: wholeNumber, reflect.Int32: wholeNumber, reflect.Int64: wholeNumber,
	reflect.Uint: wholeNumber, reflect.Uint8: wholeNumber, reflect.Uint16: wholeNumber, reflect.Uint32: wholeNumber, reflect.Uint64: wholeNumber,
	reflect.Float32: "a number", reflect.Float64: "a number",
	reflect.Slice: "an array", reflect.Array: "an array", reflect.Map: "an object", reflect.Struct: "an object",
}

// maxNameShown bounds what a detail repeats of a member name, in bytes.
const maxNameShown = 64

// memberName quotes the path to a member, such as "lines/0/sku".
func memberName(p jsontext.Pointer) string {
	name := strings.TrimPrefix(string(p), "/")
	if len(name) > maxNameShown {
		name = strings.ToValidUTF8(name[:maxNameShown], "") + "…"
	}
	return strconv.Quote(name)
}
