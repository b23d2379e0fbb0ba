// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw sends bytes as they are, optionally closes its side, and reads one answer.
func raw(t *testing.T, url, request string, hangUp bool) reply {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if hangUp {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return reply{}
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// rawOrder is a request for an order with any fields and any body.
func rawOrder(fields, body string) string {
	return "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer dev-alice\r\n" +
		"Content-Type: application/json\r\n" + fields + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

const goodOrder = `{"ref":"bad","sku":"cup","quantity":1,"amount":1200,"currency":"EUR"}`

// TestBadInput sends every kind of nonsense under one key. Each gets a clear
// problem, none has an effect or is remembered, and in the end the key is as
// good as new.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := open(t, onSQLite)
	key := newKey()
	keyField := "Idempotency-Key: " + key + "\r\n"
	with := func(member, value string) string {
		text := goodOrder
		for _, pair := range []string{`"ref":"bad"`, `"sku":"cup"`, `"quantity":1`, `"amount":1200`, `"currency":"EUR"`} {
			if strings.HasPrefix(pair, `"`+member+`"`) {
				return strings.Replace(text, pair, `"`+member+`":`+value, 1)
			}
		}
		return strings.Replace(text, "{", `{"`+member+`":`+value+`,`, 1)
	}
	bodies := map[string]string{
		"empty":                     "",
		"white space":               " \n",
		"no object":                 `[]`,
		"a string":                  `"order"`,
		"null":                      `null`,
		"truncated JSON":            goodOrder[:len(goodOrder)-3],
		"two objects":               goodOrder + goodOrder,
		"a comment":                 goodOrder + "//",
		"unknown member":            with("discount", "5"),
		"member in another case":    strings.Replace(goodOrder, `"ref"`, `"Ref"`, 1),
		"duplicate member":          with("x", "1,\"amount\":1"),
		"repeated member":           strings.Replace(goodOrder, "{", `{"amount":1,`, 1),
		"missing ref":               `{"sku":"cup","quantity":1,"amount":1200,"currency":"EUR"}`,
		"missing amount":            `{"ref":"bad","sku":"cup","quantity":1,"currency":"EUR"}`,
		"empty ref":                 with("ref", `""`),
		"ref of null":               with("ref", `null`),
		"ref of a number":           with("ref", `5`),
		"ref too long":              with("ref", `"`+strings.Repeat("r", 256)+`"`),
		"ref with a NUL":            with("ref", `"a\u0000b"`),
		"ref with half a surrogate": with("ref", `"\ud800"`),
		"ref of invalid UTF-8":      with("ref", "\"\xff\xfe\""),
		"sku of an array":           with("sku", `["cup"]`),
		"negative amount":           with("amount", `-1`),
		"amount of zero":            with("amount", `0`),
		"fractional amount":         with("amount", `1200.5`),
		"amount in a string":        with("amount", `"1200"`),
		"amount of null":            with("amount", `null`),
		"amount beyond 64 bits":     with("amount", `9223372036854775808`),
		"amount of 1e400":           with("amount", `1e400`),
		"amount of a huge exponent": with("amount", `1e999999999999999999`),
		"amount that is tiny":       with("amount", `1e-400`),
		"amount of true":            with("amount", `true`),
		"amount in hexadecimal":     with("amount", `0x10`),
		"negative quantity":         with("quantity", `-3`),
		"quantity of zero":          with("quantity", `0`),
		"currency in lower case":    with("currency", `"eur"`),
		"currency of four letters":  with("currency", `"EURO"`),
		"deep nesting":              with("ref", strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)),
		"deep objects":              strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000),
		"a million members":         "{" + strings.Repeat(`"a":1,`, 150_000) + `"b":1}`,
		"a long number":             with("amount", strings.Repeat("9", 500_000)),
	}
	for name, body := range bodies {
		t.Run("body: "+name, func(t *testing.T) {
			wantProblem(t, raw(t, w.api, rawOrder(keyField, body), false), 400, "invalid")
		})
	}

	t.Run("wrong content types", func(t *testing.T) {
		for _, media := range []string{
			"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "nonsense", "",
			"application/json; charset=latin-1",
		} {
			request := strings.Replace(rawOrder(keyField, goodOrder), "Content-Type: application/json\r\n", "Content-Type: "+media+"\r\n", 1)
			wantProblem(t, raw(t, w.api, request, false), 400, "invalid")
		}
		none := strings.Replace(rawOrder(keyField, goodOrder), "Content-Type: application/json\r\n", "", 1)
		wantProblem(t, raw(t, w.api, none, false), 400, "invalid")
		wantProblem(t, raw(t, w.api, rawOrder(keyField+"Content-Encoding: gzip\r\n", goodOrder), false), 400, "invalid")
	})
	t.Run("a body that ends too early", func(t *testing.T) {
		request := strings.Replace(rawOrder(keyField, goodOrder), "Content-Length: ", "Content-Length: 1", 1)
		if r := raw(t, w.api, request, true); r.status != 0 {
			wantProblem(t, r, 400, "invalid")
		}
		chunked := "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer dev-alice\r\n" +
			"Content-Type: application/json\r\n" + keyField + "Transfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n", len(goodOrder), goodOrder)
		if r := raw(t, w.api, chunked, true); r.status != 0 {
			wantProblem(t, r, 400, "invalid")
		}
	})
	t.Run("a body of 10 MB", func(t *testing.T) {
		huge := with("ref", `"`+strings.Repeat("r", 10<<20)+`"`)
		w.in(t).want(w.do(call{method: "POST", path: "/orders", key: key, body: huge}), 413, "too-large")
		chunked := "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer dev-alice\r\n" +
			"Content-Type: application/json\r\n" + keyField + "Transfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", 1<<20+1, strings.Repeat(" ", 1<<20+1))
		wantProblem(t, raw(t, w.api, chunked, false), 413, "too-large")
	})
	t.Run("header fields beyond all measure", func(t *testing.T) {
		if r := raw(t, w.api, rawOrder(keyField+"X: "+strings.Repeat("x", 100<<10)+"\r\n", goodOrder), false); r.status != 431 {
			t.Error(r)
		}
	})

	t.Run("nothing was done and nothing is remembered", func(t *testing.T) {
		w := w.in(t)
		if n := pages(t, w.admin, "/ledger"); len(n) != 0 {
			t.Errorf("the ledger holds %v", n)
		}
		w.settle("bad", effects{})
		r := raw(t, w.api, rawOrder(keyField, goodOrder), false)
		if r.status != 201 || r.replayed() {
			t.Fatal(r)
		}
		w.settle("bad", effects{Orders: 1, Events: counts{"order.created": 1}})
	})
}

// TestKeys is the rule of keys, form by form (K1, K2, K7).
func TestKeys(t *testing.T) { onEach(t, testKeys) }

func testKeys(t *testing.T, on kind) {
	w := open(t, on)
	send := func(t *testing.T, fields string) reply { return raw(t, w.api, rawOrder(fields, goodOrder), false) }

	t.Run("refused", func(t *testing.T) {
		for name, row := range map[string]struct{ fields, code string }{
			"missing":              {"", "key-missing"},
			"empty":                {"Idempotency-Key:\r\n", "key-invalid"},
			"white space":          {"Idempotency-Key:   \r\n", "key-invalid"},
			"empty string":         {"Idempotency-Key: \"\"\r\n", "key-invalid"},
			"two lines":            {"Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "key-invalid"},
			"two equal lines":      {"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "key-invalid"},
			"joined by a comma":    {"Idempotency-Key: a, b\r\n", "key-invalid"},
			"joined strings":       {"Idempotency-Key: \"a\", \"b\"\r\n", "key-invalid"},
			"unclosed quote":       {"Idempotency-Key: \"abc\r\n", "key-invalid"},
			"quote inside":         {"Idempotency-Key: a\"b\r\n", "key-invalid"},
			"parameters":           {"Idempotency-Key: \"abc\";p=1\r\n", "key-invalid"},
			"semicolon":            {"Idempotency-Key: a;b\r\n", "key-invalid"},
			"backslash":            {"Idempotency-Key: a\\b\r\n", "key-invalid"},
			"space inside":         {"Idempotency-Key: a b\r\n", "key-invalid"},
			"tab inside":           {"Idempotency-Key: a\tb\r\n", "key-invalid"},
			"UTF-8":                {"Idempotency-Key: schlüssel\r\n", "key-invalid"},
			"256 bytes":            {"Idempotency-Key: " + strings.Repeat("k", 256) + "\r\n", "key-invalid"},
			"256 bytes in quotes":  {"Idempotency-Key: \"" + strings.Repeat("k", 256) + "\"\r\n", "key-invalid"},
			"10 kB":                {"Idempotency-Key: " + strings.Repeat("k", 10<<10) + "\r\n", "key-invalid"},
			"minted in the future": {"Idempotency-Key: " + keyAt(time.Now().Add(6*time.Minute)) + "\r\n", "key-invalid"},
		} {
			r := send(t, row.fields)
			if r.status != 400 || r.text("code") != row.code {
				t.Errorf("%s: %v", name, r)
				continue
			}
			wantProblem(t, r, 400, row.code)
		}
		if n := pages(t, w.admin, "/ledger"); len(n) != 0 {
			t.Errorf("the ledger holds %v", n)
		}
		w.in(t).settle("bad", effects{})
	})
	t.Run("taken", func(t *testing.T) {
		orders := 0
		for name, fields := range map[string]string{
			"one byte":         "Idempotency-Key: k\r\n",
			"255 bytes":        "Idempotency-Key: " + strings.Repeat("k", 255) + "\r\n",
			"every bare byte":  "Idempotency-Key: !#$%&'()*+-./0123456789:<=>?@AZ[]^_`az{|}~\r\n",
			"escapes":          `Idempotency-Key: "a\"b\\c"` + "\r\n",
			"spaces in quotes": `Idempotency-Key: " a b "` + "\r\n",
			"nearly too early": "Idempotency-Key: " + keyAt(time.Now().Add(4*time.Minute)) + "\r\n",
			"the zero UUID":    "Idempotency-Key: 00000000-0000-0000-0000-000000000000\r\n",
		} {
			if r := send(t, fields); r.status != 201 || r.replayed() {
				t.Errorf("%s: %v", name, r)
			}
			if r := send(t, fields); r.status != 201 || !r.replayed() {
				t.Errorf("%s, again: %v", name, r)
			}
			orders++
		}
		w.in(t).settle("bad", effects{Orders: orders, Events: counts{"order.created": orders}})
	})
	t.Run("bare and quoted are one key, case counts", func(t *testing.T) {
		first := send(t, "Idempotency-Key: One-Key\r\n")
		if r := send(t, "Idempotency-Key: \"One-Key\"\r\n"); r.body != first.body || !r.replayed() {
			t.Error(r)
		}
		if r := send(t, "idempotency-key:   One-Key  \r\n"); r.body != first.body || !r.replayed() {
			t.Error(r)
		}
		if r := send(t, "Idempotency-Key: one-key\r\n"); r.status != 201 || r.replayed() {
			t.Error(r)
		}
	})
}

func TestWrongAddress(t *testing.T) { onEach(t, testWrongAddress) }

func testWrongAddress(t *testing.T, on kind) {
	w := open(t, on)
	for _, path := range []string{"/", "/nothing", "/orders/", "/orders//", "//orders", "/orders/../orders", "/orders/a/b/c", "/coupons/A/B"} {
		for _, method := range []string{"GET", "POST"} {
			wantProblem(t, raw(t, w.api, method+" "+path+" HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", false),
				404, "not-found")
		}
	}
	for _, name := range []string{"%00", "a%00b", "%ff", "%c3%28"} { // are no text, and no database need be asked
		for _, c := range []call{
			{method: "GET", path: "/orders/" + name},
			{method: "PUT", path: "/orders/" + name, body: object{"quantity": 1, "amount": 1}, header: map[string]string{"If-Match": "*"}},
			{method: "DELETE", path: "/orders/" + name, header: map[string]string{"If-Match": "*"}},
			{method: "POST", path: "/orders/" + name + "/payments", key: newKey(), body: paymentBody("x")},
			{method: "GET", path: "/payments/" + name},
			{method: "POST", path: "/coupons/" + name + "/redemptions", key: newKey(), body: object{"ref": "x"}},
		} {
			w.want(w.do(c), 404, "not-found")
		}
		for _, list := range []string{"/orders?ref=", "/orders?after=", "/payments?ref=", "/payments?after="} {
			w.want(w.get(list+name), 400, "invalid")
		}
		if r := send(t, "GET", w.admin+"/effects?caller=alice&ref="+name, nil, nil); r.status != 400 {
			t.Error(r)
		}
	}
	for path, allow := range map[string]string{
		"/orders":                     "GET, HEAD, POST",
		"/orders/x":                   "DELETE, GET, HEAD, PUT",
		"/orders/x/payments":          "POST",
		"/payments":                   "GET, HEAD",
		"/coupons":                    "POST",
		"/.well-known/retry-contract": "GET, HEAD",
	} {
		r := w.do(call{method: "PATCH", path: path})
		w.want(r, 405, "method-not-allowed")
		if got := r.header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q; want %q", path, got, allow)
		}
	}
}
