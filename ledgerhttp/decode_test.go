// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
)

type currency string

func (c *currency) UnmarshalJSON(b []byte) error {
	if string(b) != `"EUR"` {
		return Invalid("must be a currency")
	}
	*c = "EUR"
	return nil
}

type secretive struct{}

func (*secretive) UnmarshalJSON([]byte) error { return errors.New("internal text") }

type order struct {
	Ref       string                 `json:"ref"`
	Amount    Integer                `json:"amount"`
	Plain     int64                  `json:"plain"`
	Ratio     float64                `json:"ratio"`
	Gift      bool                   `json:"gift"`
	Currency  currency               `json:"currency"`
	Secretive secretive              `json:"secretive"`
	Note      *string                `json:"note"`
	Lines     []struct{ SKU string } `json:"lines"`
	Labels    map[string]string      `json:"labels"`
	Free      any                    `json:"free"`
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()

	decode := func(contentType, body string, more ...string) (order, error) {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Del("Content-Type")
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		for i := 0; i < len(more); i += 2 {
			r.Header.Set(more[i], more[i+1])
		}
		return DecodeJSON[order](&Request{Request: r, Body: []byte(body)})
	}

	accepted := map[string]string{
		"the plain form":            "application/json",
		"a charset":                 "application/json; charset=UTF-8",
		"another case":              "Application/JSON",
		"a type with a JSON suffix": "application/vnd.shop.order+json",
	}
	for name, contentType := range accepted {
		t.Run("accepts "+name, func(t *testing.T) {
			t.Parallel()
			o, err := decode(contentType, ` {"ref":"r","amount":1.2e3,"gift":true,"currency":"EUR","note":null,"lines":null} `)
			if err != nil || o.Ref != "r" || o.Amount != 1200 || !o.Gift || o.Currency != "EUR" || o.Note != nil {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}

	refusedTypes := []struct{ name, contentType, field, value string }{
		{"no media type", "", "", ""},
		{"a form", "application/x-www-form-urlencoded", "", ""},
		{"text", "text/plain", "", ""},
		{"a malformed media type", "application/json; =", "", ""},
		{"another charset", "application/json; charset=latin1", "", ""},
		{"a content coding", "application/json", "Content-Encoding", "gzip"},
	}
	for _, c := range refusedTypes {
		t.Run("refuses "+c.name, func(t *testing.T) {
			t.Parallel()
			var more []string
			if c.field != "" {
				more = []string{c.field, c.value}
			}
			if _, err := decode(c.contentType, `{}`, more...); reprise.CodeOf(err) != reprise.CodeInvalid {
				t.Errorf("got %v, want code invalid", err)
			}
		})
	}

	long := strings.Repeat("n", 1000)
	refused := []struct{ name, body, detail string }{
		{"nothing", ``, `the body is empty; it must be a JSON object`},
		{"white space", " \n", `the body is empty; it must be a JSON object`},
		{"null", `null`, `the body must be a JSON object`},
		{"an array", `[]`, `the body must be a JSON object`},
		{"a string", `"x"`, `the body must be a JSON object`},
		{"an end too early", `{"ref":`, `the body is not valid JSON at byte 8`},
		{"something behind", `{} {}`, `the body is not valid JSON at byte 4`},
		{"a comma too many", `{"ref":"r",}`, `the body is not valid JSON at byte 11`},
		{"an unknown member", `{"colour":1}`, `the member "colour" is not known`},
		{"another case of a member", `{"Ref":"r"}`, `the member "Ref" is not known`},
		{"a member twice", `{"ref":"r","ref":"s"}`, `the member "ref" is given twice`},
		{"a member twice by escapes", `{"ref":"r","r\u0065f":"s"}`, `the member "ref" is given twice`},
		{"a member twice inside of another", `{"labels":{"a":"1","a":"2"}}`, `the member "labels/a" is given twice`},
		{"a number for a string", `{"ref":1}`, `the member "ref" must be a string`},
		{"a string for a number", `{"amount":"1"}`, `the member "amount" must be a whole number`},
		{"a fraction", `{"amount":1200.5}`, `the member "amount" must be a whole number`},
		{"an amount of null", `{"amount":null}`, `the member "amount" must not be null`},
		{"an amount beyond 64 bits", `{"amount":9223372036854775808}`, `the member "amount" must fit into 64 bits`},
		{"a plain integer's fraction", `{"plain":0.5}`, `the member "plain" must be a whole number`},
		{"a plain integer of null", `{"plain":null}`, `the member "plain" must not be null`},
		{"a plain integer out of range", `{"plain":9223372036854775808}`, `the member "plain" is out of range`},
		{"text for a ratio", `{"ratio":"x"}`, `the member "ratio" must be a number`},
		{"a string of null", `{"ref":null}`, `the member "ref" must not be null`},
		{"a number for a boolean", `{"gift":1}`, `the member "gift" must be true or false`},
		{"an object for an array", `{"lines":{}}`, `the member "lines" must be an array`},
		{"an array for an object", `{"labels":[]}`, `the member "labels" must be an object`},
		{"a wrong type inside", `{"lines":[{"SKU":"a"},{"SKU":7}]}`, `the member "lines/1/SKU" must be a string`},
		{"what a field's own type refuses", `{"currency":"XXX"}`, `the member "currency" must be a currency`},
		{"a field's other error, untold", `{"secretive":1}`, `the member "secretive" must be an object`},
		{"a long name, cut", `{"` + long + `":1}`, `the member "` + long[:64] + `…" is not known`},
		{"invalid UTF-8", "{\"ref\":\"\xff\"}", `the body is not valid UTF-8`},
		{"half a surrogate pair", `{"ref":"\ud800"}`, `the body is not valid JSON at byte 9`},
		{"a NUL", "{\"ref\":\"\x00\"}", `the body is not valid JSON at byte 9`},
	}
	for _, c := range refused {
		t.Run("refuses "+c.name, func(t *testing.T) {
			t.Parallel()
			o, err := decode("application/json", c.body)
			e, ok := errors.AsType[*reprise.Error](err)
			if !ok || e.Code != reprise.CodeInvalid || e.Outcome != reprise.NotProcessed {
				t.Fatalf("got %v, want code invalid and outcome not-processed", err)
			}
			if e.Detail != c.detail {
				t.Errorf("got detail %q\nwant %q", e.Detail, c.detail)
			}
			if o.Ref != "" || o.Amount != 0 {
				t.Errorf("a refused body left %+v behind", o)
			}
		})
	}

	bombs := map[string]string{
		"arrays":          `{"free":` + strings.Repeat("[", 500_000),
		"closed arrays":   `{"free":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}",
		"objects":         `{"free":` + strings.Repeat(`{"a":`, 100_000),
		"an endless name": `{"` + strings.Repeat("a", 900_000),
		"a huge exponent": `{"amount":1e` + strings.Repeat("9", 900_000) + "}",
		"a huge number":   `{"amount":` + strings.Repeat("9", 900_000) + "}",
	}
	for name, body := range bombs {
		t.Run("refuses a bomb of "+name, func(t *testing.T) {
			t.Parallel()
			_, err := decode("application/json", body)
			e, ok := errors.AsType[*reprise.Error](err)
			if !ok || e.Code != reprise.CodeInvalid || len(e.Detail) > 200 {
				t.Errorf("got %.200v, want a short error with code invalid", err)
			}
		})
	}
}
