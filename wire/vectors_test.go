// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/hex"
	"net/http"
	"os"
	"testing"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// vectors reads a file of spec/vectors. Unknown members are mistakes.
func vectors[T any](tb testing.TB, name string) T {
	tb.Helper()
	text, err := os.ReadFile("../spec/vectors/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(text, &v, json.RejectUnknownMembers(true)); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return v
}

// fields turns the header of a vector into an http.Header.
func fields(from map[string][]string) http.Header {
	h := http.Header{}
	for name, lines := range from {
		h[http.CanonicalHeaderKey(name)] = lines
	}
	return h
}

type fingerprintVectors struct {
	Same      []fingerprintGroup  `json:"same"`
	Different []fingerprintGroup  `json:"different"`
	Refused   []fingerprintGroup  `json:"refused"`
	Digests   []fingerprintDigest `json:"digests"`
}

type fingerprintGroup struct {
	Name     string           `json:"name"`
	Rule     string           `json:"rule"`
	Request  jsontext.Value   `json:"request"`
	Variants []jsontext.Value `json:"variants"`
}

type fingerprintDigest struct {
	Name        string         `json:"name"`
	Request     jsontext.Value `json:"request"`
	Encoded     string         `json:"encoded"`
	Fingerprint string         `json:"fingerprint"`
}

// shape reads the request of a vector and then lays a variant over it.
func shape(tb testing.TB, request jsontext.Value, variant jsontext.Value) wire.Shape {
	tb.Helper()
	var r struct {
		Method      string              `json:"method"`
		Operation   reprise.Operation   `json:"operation"`
		Path        string              `json:"path"`
		Query       string              `json:"query"`
		ContentType string              `json:"content_type"`
		Header      map[string][]string `json:"header"`
		HeaderNames []string            `json:"header_names"`
		Body        string              `json:"body"`
		BodyHex     string              `json:"body_hex"`
		Volatile    []string            `json:"volatile"`
		Secret      string              `json:"secret"`
	}
	for _, layer := range []jsontext.Value{request, variant} {
		if layer == nil {
			continue
		}
		if err := json.Unmarshal(layer, &r, json.RejectUnknownMembers(true)); err != nil {
			tb.Fatalf("%s: %v", layer, err)
		}
	}
	body := []byte(r.Body)
	if r.BodyHex != "" {
		var err error
		if body, err = hex.DecodeString(r.BodyHex); err != nil {
			tb.Fatal(err)
		}
	}
	return wire.Shape{
		Method: r.Method, Operation: r.Operation, Path: r.Path, RawQuery: r.Query, ContentType: r.ContentType,
		Header: fields(r.Header), HeaderNames: r.HeaderNames, Body: body, Volatile: r.Volatile, Secret: []byte(r.Secret),
	}
}

// printableASCII is what a key may hold (rule K1).
var printableASCII = unicode.RangeTable{R16: []unicode.Range16{{Lo: ' ', Hi: '~', Stride: 1}}, LatinOffset: 1}
