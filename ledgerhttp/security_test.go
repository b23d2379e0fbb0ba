// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/wire"
)

func TestScope(t *testing.T) {
	t.Parallel()

	t.Run("SEC-01 another caller's key is another intent", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		ann := s.send(c)
		bob := s.send(c.by("bob"))
		bob.want(t, 201, "")
		bob.wantReplay(t, false)
		if bob.body == ann.body {
			t.Errorf("bob was given ann's answer: %s", bob.body)
		}
		s.wantRows("r", 2)
	})
	t.Run("SEC-02 a caller can't tell another one's key from an unknown one", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		known := newKey()
		s.send(post(known, orderBody)).want(t, 201, "")
		for name, body := range map[string]string{"same body": orderBody, "other body": `{"ref":"probe","amount":1}`} {
			// Twins of a fresh service: what a caller sees who has never met ann.
			onKnown := s.send(post(known, body).by("eve-" + name[:4]))
			onFresh := s.send(post(newKey(), body).by("eve-" + name[:4]))
			// The id of the new row is what may differ.
			shape := func(a answer) string {
				a.header.Del("Date")
				a.header.Del(wire.HeaderExpires)
				a.header.Set("Location", strings.TrimRight(a.header.Get("Location"), "0123456789"))
				var b bytes.Buffer
				_ = a.header.Write(&b)
				return b.String()
			}
			if onKnown.status != onFresh.status || shape(onKnown) != shape(onFresh) {
				t.Errorf("%s: known key: %d\n%sfresh key: %d\n%s", name, onKnown.status, shape(onKnown), onFresh.status, shape(onFresh))
			}
		}
	})
	t.Run("SEC-03 a key can't be taken from its owner in advance", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post("guessable", orderBody)
		s.send(post("guessable", `{"ref":"squat","amount":1}`).by("eve")).want(t, 201, "")
		a := s.send(c)
		a.want(t, 201, "")
		a.wantReplay(t, false)
		s.wantRows("r", 1)
	})
	t.Run("SEC-05 whoever may not ask any more is not shown the answer", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		first := s.send(c)
		s.revoked.Store("ann", true)
		for _, again := range []call{c, post(c.key, `{"ref":"other","amount":1}`), post(newKey(), orderBody), post("", `{}`)} {
			a := s.send(again)
			a.want(t, 403, "forbidden")
			if a.header.Get("Location") != "" || a.header.Get(wire.HeaderReplayed) != "" {
				t.Errorf("the refusal shows something: %v", a.header)
			}
		}
		s.send(c.by("")).want(t, 401, reprise.CodeUnauthenticated)
		s.revoked.Delete("ann")
		s.send(c).wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("SEC-07 the same caller with other credentials is the same caller", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) {
			o.server.Callers = func(*http.Request) (reprise.Caller, error) { return "ann", nil }
		})
		c := post(newKey(), orderBody)
		first := s.send(c.by("key-1"))
		again := s.send(c.by("key-2"))
		again.wantReplay(t, true)
		again.wantSame(t, first)
	})
}

func TestHostileKeys(t *testing.T) {
	t.Parallel()
	s := setup(t)

	accepted := []struct{ name, first, again string }{
		{"quoted and bare are one", `abc`, `"abc"`},
		{"255 bytes", strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
		{"an escaped line break is four letters", `%0d%0a`, `"%0d%0a"`},
	}
	for _, c := range accepted {
		t.Run("K7 "+c.name, func(t *testing.T) {
			t.Parallel()
			body := `{"ref":"` + c.name + `","amount":1}`
			first := s.send(post(c.first, body))
			first.want(t, 201, "")
			again := s.send(post(c.again, body))
			again.wantReplay(t, true)
			again.wantSame(t, first)
			s.wantRows(c.name, 1)
		})
	}
	t.Run("K2 case counts", func(t *testing.T) {
		t.Parallel()
		body := `{"ref":"case","amount":1}`
		s.send(post("casekey", body)).want(t, 201, "")
		s.send(post("caseKEY", body)).want(t, 201, "")
		s.wantRows("case", 2)
	})

	refused := map[string][]string{
		"empty":              {""},
		"over the limit":     {strings.Repeat("k", 256)},
		"10 KB":              {strings.Repeat("k", 10_000)},
		"10 KB in quotes":    {`"` + strings.Repeat("k", 10_000) + `"`},
		"two fields":         {"a", "b"},
		"two equal fields":   {"a", "a"},
		"joined by a comma":  {"a, b"},
		"an open quote":      {`"a`},
		"a quote inside":     {`a"b`},
		"a parameter":        {`a;p=1`},
		"bytes beyond ASCII": {"k\xc3\xa9y"},
		"a list in quotes":   {`"a", "b"`},
	}
	for name, values := range refused {
		t.Run("K7 refuses "+name, func(t *testing.T) {
			t.Parallel()
			c := post("", `{"ref":"refused","amount":1}`)
			c.header = http.Header{wire.HeaderKey: values}
			a := s.send(c)
			a.want(t, 400, reprise.CodeKeyInvalid)
			for _, v := range values {
				if len(v) > 2 && strings.Contains(a.body, v) {
					t.Errorf("the refusal repeats the key: %s", a.body)
				}
			}
			s.wantRows("refused", 0)
		})
	}
	t.Run("SEC-11 a line break in a key never gets as far as a field", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		for _, key := range []string{"a\r\nSet-Cookie: x=1", "a\nb", "a\x00b"} {
			a := s.raw(t, "POST /orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer dev-ann\r\n"+
				"Content-Type: application/json\r\nIdempotency-Key: \""+key+"\"\r\n"+
				"Content-Length: 25\r\nConnection: close\r\n\r\n"+`{"ref":"r","amount":1200} `)
			if a.status != 400 {
				t.Errorf("key %q: status %d, want 400: %s", key, a.status, a.body)
			}
			if len(a.header["Set-Cookie"]) > 0 {
				t.Errorf("key %q: a field was injected: %v", key, a.header)
			}
		}
		s.wantRows("r", 0)
	})
	t.Run("SEC-19 quotes and percent signs are just bytes", func(t *testing.T) {
		t.Parallel()
		body := `{"ref":"sql","amount":1}`
		for _, key := range []string{`'); DROP TABLE orders; --`, `%s%n{{.}}`, `${jndi:ldap://x}`} {
			quoted := http.Header{}
			wire.SetKey(quoted, reprise.Key(key))
			first := s.send(post(quoted.Get(wire.HeaderKey), body))
			first.want(t, 201, "")
			s.send(post(quoted.Get(wire.HeaderKey), body)).wantSame(t, first)
		}
		s.wantRows("sql", 3)
	})
}

// dangerous are fields that belong to one response.
var dangerous = map[string]string{
	"Set-Cookie": "session=secret", "Www-Authenticate": `Bearer realm="x"`, "Authentication-Info": "nextnonce=1",
	"Proxy-Authenticate": "Basic", "X-Ratelimit-Remaining": "1", "Ratelimit": "r;r=1", "X-Request-Id": "first",
	"Keep-Alive": "timeout=5", "Trailer": "X", "Upgrade": "h2c", "Age": "7",
	"Idempotent-Replayed": "true", "Idempotency-Expires": "never", "Retry-Context": "processed=?0", "Date": "yesterday",
}

// TestStoredFields is about results of typed handlers, which consist of stored
// fields only.
func TestStoredFields(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *options) { o.ledger.Headers = []string{"X-Version"} })
	s.replace(ledgerhttp.Atomic(s.server, "create-order", decodeOrder,
		func(ctx context.Context, tx *sql.Tx, in order) (reprise.Result, error) {
			if _, err := insertOrder(ctx, tx, in); err != nil {
				return reprise.Result{}, err
			}
			res, err := ledgerhttp.JSON(http.StatusCreated, in.Ref)
			for name, value := range dangerous {
				res.Header[name] = []string{value}
			}
			res.Header["Location"] = []string{"/orders/1"}
			res.Header["X-Version"] = []string{"7"}
			return res, err
		}))

	t.Run("L5 the first answer and its repeat have the stored fields and no others", func(t *testing.T) {
		t.Parallel()
		c := post(newKey(), `{"ref":"keyed","amount":1}`)
		first, again := s.send(c), s.send(c)
		first.wantReplay(t, false)
		again.wantReplay(t, true)
		again.wantSame(t, first)
		for _, a := range []answer{first, again} {
			a.want(t, 201, "")
			if a.header.Get("Location") != "/orders/1" || a.header.Get("X-Version") != "7" || a.body != `"keyed"` {
				t.Errorf("not whole: %v %q", a.header, a.body)
			}
			for name, value := range dangerous {
				if name != wire.HeaderReplayed && a.header.Get(name) == value {
					t.Errorf("%s: %s was answered", name, value)
				}
			}
		}
		s.wantRows("keyed", 1)
	})
}

// TestReplayedFields is about responses of handlers under Middleware, which have
// other fields too, once.
func TestReplayedFields(t *testing.T) {
	t.Parallel()

	t.Run("SEC-09 SEC-10 fields of one response are never replayed", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			for name, value := range dangerous {
				w.Header().Set(name, value)
			}
			w.Header().Set("Content-Length", "1")
			w.Header().Set("Transfer-Encoding", "chunked")
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("created"))
		})
		c := post(newKey(), orderBody).to("/wrapped")
		first := s.send(c)
		if first.status != 201 || first.body != "created" || first.header.Get("Set-Cookie") != "session=secret" {
			t.Errorf("the first answer is not whole: %d %q %v", first.status, first.body, first.header)
		}
		first.wantReplay(t, false)
		again := s.send(c)
		again.wantReplay(t, true)
		if again.status != 201 || again.body != "created" || again.header.Get("Location") != "/orders/1" {
			t.Errorf("the repeat is not whole: %d %q %v", again.status, again.body, again.header)
		}
		for name, value := range dangerous {
			if name != wire.HeaderReplayed && again.header.Get(name) == value {
				t.Errorf("%s: %s was replayed", name, value)
			}
		}
		for _, a := range []answer{first, again} {
			if a.header.Get("Content-Length") != "7" || len(a.header["Transfer-Encoding"]) > 0 || a.header.Get("Trailer") != "" ||
				a.header.Get(wire.HeaderExpires) == "never" {
				t.Errorf("the handler had its way with the framing: %v", a.header)
			}
		}
		s.wantRows("r", 1)
	})
	t.Run("L5 of two attempts at the same time one gets the session", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.awaitArrivals(2)
			s.insert(r, "r")
			w.Header().Set("Set-Cookie", "session=secret")
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
		})
		c := post(newKey(), orderBody).to("/wrapped")
		one, two := s.async(c), s.async(c)
		sessions := 0
		for _, a := range []answer{<-one, <-two} {
			a.want(t, 201, "")
			if a.header.Get("Location") != "/orders/1" {
				t.Errorf("not whole: %v", a.header)
			}
			if session := len(a.header["Set-Cookie"]) > 0; session {
				sessions++
				a.wantReplay(t, false)
			}
		}
		if sessions != 1 {
			t.Errorf("%d answers opened a session, want 1", sessions)
		}
		s.wantRows("r", 1)
	})
	t.Run("SEC-12 a line break in a value splits no response", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, r *http.Request) {
			s.insert(r, "r")
			w.Header()["Location"] = []string{"/x\r\nSet-Cookie: a=b"}
			w.WriteHeader(http.StatusCreated)
		})
		a := s.send(post(newKey(), orderBody).to("/wrapped"))
		a.want(t, 500, reprise.CodeInternal)
		if len(a.header["Set-Cookie"]) > 0 {
			t.Errorf("a field was injected: %v", a.header)
		}
		s.wantRows("r", 0)
	})
	t.Run("SEC-13 coded content is replayed with its coding", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.wrap(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x-coded")
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Vary", "Accept-Encoding")
			_, _ = w.Write([]byte("\x1f\x8b\x00"))
		})
		c := post(newKey(), orderBody).to("/wrapped")
		first := s.send(c)
		first.want(t, 200, "")
		if first.header.Get("Content-Encoding") != "x-coded" || first.body != "\x1f\x8b\x00" {
			t.Errorf("got %v %q", first.header, first.body)
		}
		s.send(c).wantSame(t, first)
	})
	t.Run("SEC-14 no cache keeps an answer", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		for _, a := range []answer{s.send(c), s.send(c), s.send(post("", orderBody))} {
			if a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%d: Cache-Control is %q", a.status, a.header.Get("Cache-Control"))
			}
		}
	})
	t.Run("a handler's own Cache-Control is kept where the ledger stores it", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.ledger.Headers = []string{"Cache-Control"} })
		s.wrap(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "private, max-age=5") })
		c := post(newKey(), orderBody).to("/wrapped")
		first := s.send(c)
		if first.header.Get("Cache-Control") != "private, max-age=5" {
			t.Errorf("Cache-Control is %q", first.header.Get("Cache-Control"))
		}
		s.send(c).wantSame(t, first)
	})
	t.Run("SEC-25 fields of ours in a request mean nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody).with(
			wire.HeaderReplayed, "true", wire.HeaderExpires, "Thu, 01 Jan 1970 00:00:00 GMT",
			wire.HeaderRetryContext, `attempt=99, processed=?0, retry=?0`, "X-Caller", "bob")
		first := s.send(c)
		first.want(t, 201, "")
		first.wantReplay(t, false)
		s.send(c.with(wire.HeaderRetryContext, "not ( a dictionary")).wantSame(t, first)
		s.wantRows("r", 1)
	})
	t.Run("SEC-24 early data is for keys and for what may be repeated", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		for _, value := range []string{"1", "0", ""} {
			for _, path := range []string{"/pings", "/notes"} {
				a := s.send(post("", orderBody).to(path).with("Early-Data", value))
				a.want(t, 425, "too-early")
			}
		}
		s.wantRows("r", 0)
		c := post(newKey(), orderBody).with("Early-Data", "1")
		first := s.send(c)
		first.want(t, 201, "")
		s.send(c).wantSame(t, first)
		s.send(call{method: "GET", path: "/orders/1", caller: "ann"}.with("Early-Data", "1")).want(t, 200, "")
		s.send(post("", `{"ref":"r","amount":5}`).via("PUT").to("/orders/1").with("If-Match", `"1"`, "Early-Data", "1")).want(t, 200, "")
		s.wantRows("r", 1)
	})
	t.Run("SEC-21 the secret is part of every fingerprint", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.server.FingerprintSecret = []byte("pepper") })
		c := post(newKey(), orderBody)
		first := s.send(c)
		s.send(c).wantSame(t, first)
		var fingerprint []byte
		check(t, s.db.QueryRow(`SELECT fingerprint FROM reprise_ledger`).Scan(&fingerprint))
		plain, err := wire.Shape{
			Method: "POST", Operation: "create-order", Path: "/orders", ContentType: "application/json", Body: []byte(orderBody),
		}.Fingerprint()
		check(t, err)
		if len(fingerprint) != len(plain) || bytes.Equal(fingerprint, plain[:]) {
			t.Errorf("the stored fingerprint %x can be made without the secret", fingerprint)
		}
	})
}
