// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// The media types that are read rather than hashed as they are.
const (
	typeJSON      = "application/json"
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// body writes how the content was read, its media type, and the content in
// canonical form (rules F3 to F5). Coded content is not decoded: the attempts of
// one client code it alike.
func (e *encoder) body(s *Shape) error {
	m := parseMediaType(s.ContentType)
	codings := contentCodings(s.Header)
	switch {
	case len(s.Body) == 0:
		e.text("empty")
		e.media(m)
		return nil
	case len(codings) > 0 || m.malformed: // As it stands.
	case m.isJSON():
		e.text("json")
		e.media(m.withoutUTF8())
		return e.jsonText(s.Body, s.Volatile)
	case m.essence == typeForm:
		e.text("form")
		e.media(m.withoutUTF8())
		return e.pairs(string(s.Body))
	case m.essence == typeMultipart:
		e.text("multipart")
		boundary := m.params["boundary"]
		e.media(m.without("boundary"))
		return e.multipart(s.Body, boundary)
	}
	e.text("raw")
	e.media(m)
	e.number(len(codings))
	for _, c := range codings {
		e.text(c)
	}
	e.number(len(s.Body))
	e.tail = s.Body
	return nil
}

func (e *encoder) jsonText(text []byte, volatile []string) (err error) {
	start := e.open()
	e.buf, err = e.json.append(e.buf, text, volatile)
	e.close(start)
	return err
}

// contentCodings lists the codings of the content; "identity" is none.
func contentCodings(h http.Header) []string {
	var codings []string
	for _, line := range h["Content-Encoding"] {
		for c := range strings.SplitSeq(line, ",") {
			if c = strings.ToLower(strings.Trim(c, " \t")); c != "" && c != "identity" {
				codings = append(codings, c)
			}
		}
	}
	return codings
}

// mediaType is a Content-Type field. When it is malformed, essence is the field
// as it was sent and there are no parameters.
type mediaType struct {
	essence   string
	params    map[string]string
	malformed bool
}

func parseMediaType(field string) mediaType {
	switch field {
	case typeJSON, "": // The usual case needs no map of parameters.
		return mediaType{essence: field}
	}
	essence, params, err := mime.ParseMediaType(field)
	if err != nil || !strings.Contains(essence, "/") {
		return mediaType{essence: strings.Trim(field, " \t"), malformed: true}
	}
	return mediaType{essence: essence, params: params}
}

func (m mediaType) isJSON() bool {
	return m.essence == typeJSON || strings.HasSuffix(m.essence, "+json")
}

func (m mediaType) without(name string) mediaType {
	delete(m.params, name)
	return m
}

// withoutUTF8 drops a charset that says what is so anyway.
func (m mediaType) withoutUTF8() mediaType {
	if strings.EqualFold(m.params["charset"], "utf-8") {
		return m.without("charset")
	}
	return m
}

// media writes a media type: in lower case, with its parameters by name.
func (e *encoder) media(m mediaType) {
	e.text(m.essence)
	e.number(len(m.params))
	if len(m.params) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.params)) {
		e.text(name)
		e.text(m.params[name])
	}
}

// multipart writes the parts of a multipart/form-data body (RFC 7578) in their
// order: name, file name, media type and the digest of the content of each. The
// boundary, which clients choose anew for each attempt, does not count (rule F4).
func (e *encoder) multipart(body []byte, boundary string) error {
	if boundary == "" {
		return invalid("the content type of the multipart body names no boundary")
	}
	// The reader does not tell the end of the body from the closing boundary.
	closing := "--" + boundary + "--"
	if !bytes.Contains(body, []byte("\n"+closing)) && !bytes.HasPrefix(body, []byte(closing)) {
		return invalid("the multipart body is cut off: its closing boundary is missing")
	}
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for n := 1; ; n++ {
		part, err := r.NextRawPart()
		if err == io.EOF { // Not errors.Is: a wrapped EOF is an unexpected one.
			e.number(0)
			return nil
		}
		if err != nil {
			return invalid("the multipart body is malformed at its part %d", n)
		}
		e.number(1)
		if err := e.part(part); err != nil {
			return invalid("part %d of the multipart body %v", n, err)
		}
	}
}

var (
	errPartName = errors.New("has no Content-Disposition with a form-data name")
	errPartBody = errors.New("is cut off")
)

func (e *encoder) part(part *multipart.Part) error {
	disposition, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name, named := params["name"]
	if err != nil || disposition != "form-data" || !named {
		return errPartName
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, part); err != nil {
		return errPartBody
	}
	filename, isFile := params["filename"]
	e.text(name)
	if isFile {
		e.number(1)
		e.text(filename)
	} else {
		e.number(0)
	}
	e.media(parseMediaType(part.Header.Get("Content-Type")))
	e.bytes(digest.Sum(nil))
	return nil
}
