// SPDX-License-Identifier: Apache-2.0

package ledgerhttp_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledgerhttp"
	"github.com/reprise-go/reprise/wire"
)

const orderBody = `{"ref":"r","amount":1200}`

func TestAtomic(t *testing.T) {
	t.Parallel()

	t.Run("L1 an unknown key is executed", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		a := s.send(post(newKey(), orderBody))
		a.want(t, 201, "")
		a.wantReplay(t, false)
		if want := `{"amount":1200,"id":1,"ref":"r"}`; a.body != want {
			t.Errorf("got body %q, want %q", a.body, want)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Content-Length": fmt.Sprint(len(a.body)),
			"Location": "/orders/1", "Etag": `"1"`, "Cache-Control": "no-store",
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		s.wantRows("r", 1)
	})
	t.Run("L2 L4 a known key is answered, byte for byte", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		first := s.send(c)
		for range 3 {
			again := s.send(c.with(wire.HeaderRetryContext, "attempt=2"))
			again.wantReplay(t, true)
			again.wantSame(t, first)
		}
		s.wantRows("r", 1)
	})
	t.Run("F3 L2 the same meaning in other bytes is the same request", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		key := newKey()
		first := s.send(post(key, orderBody))
		for _, body := range []string{
			`{"amount":1200,"ref":"r"}`, "\n{ \"ref\" : \"r\", \"amount\" : 1200 }", `{"ref":"r","amount":1200.0}`,
			`{"ref":"r","amount":1.2e3}`, `{"ref":"\u0072","amount":1200}`,
		} {
			again := s.send(post(key, body))
			again.wantReplay(t, true)
			again.wantSame(t, first)
		}
		s.wantRows("r", 1)
	})
	t.Run("L6 another body is refused, and changes nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		first := s.send(c)
		for _, other := range []string{`{"ref":"r","amount":1201}`, `{"ref":"q","amount":1200}`} {
			a := s.send(post(c.key, other))
			a.want(t, 422, reprise.CodeKeyReused)
			if strings.Contains(a.body, "1200") || a.header.Get("Location") != "" {
				t.Errorf("the refusal shows what is stored: %s", a.body)
			}
		}
		again := s.send(c)
		again.wantReplay(t, true)
		again.wantSame(t, first)
		s.wantRows("r", 1)
		s.wantRows("q", 0)
	})
	t.Run("L11 a repeat in progress waits, and is answered with the result", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		started, release := make(chan struct{}), make(chan struct{})
		s.whenWorking(func(context.Context, *sql.Tx) error {
			close(started)
			<-release
			return nil
		})
		c := post(newKey(), orderBody)
		first := s.async(c)
		<-started
		second := s.async(c)
		s.awaitArrivals(2)
		close(release)
		one, two := <-first, <-second
		one.want(t, 201, "")
		two.wantReplay(t, true)
		two.wantSame(t, one)
		s.wantRows("r", 1)
	})
	t.Run("L11 a repeat that waited too long gets 409, and then the result", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.wait = time.Millisecond })
		started, release := make(chan struct{}), make(chan struct{})
		s.whenWorking(func(context.Context, *sql.Tx) error {
			close(started)
			<-release
			return nil
		})
		c := post(newKey(), orderBody)
		first := s.async(c)
		<-started
		busy := s.send(c)
		busy.want(t, 409, reprise.CodeInProgress)
		if busy.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q, want 1", busy.header.Get("Retry-After"))
		}
		if busy.header.Get(wire.HeaderExpires) != "" {
			t.Error("an answer that is not stored says when it expires")
		}
		close(release)
		one := <-first
		again := s.send(c)
		again.wantReplay(t, true)
		again.wantSame(t, one)
		s.wantRows("r", 1)
	})
	t.Run("L6 another body in flight is refused at once", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		started, release := make(chan struct{}), make(chan struct{})
		s.whenWorking(func(context.Context, *sql.Tx) error {
			close(started)
			<-release
			return nil
		})
		c := post(newKey(), orderBody)
		first := s.async(c)
		<-started
		s.send(post(c.key, `{"ref":"other","amount":1}`)).want(t, 422, reprise.CodeKeyReused)
		close(release)
		(<-first).want(t, 201, "")
		s.wantRows("r", 1)
		s.wantRows("other", 0)
	})
	t.Run("K3 one key on two operations is two intents", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		s.send(c).want(t, 201, "")
		a := s.send(c.to("/notes"))
		a.want(t, 201, "")
		a.wantReplay(t, false)
		s.wantRows("r", 2)
	})
	t.Run("F2 one key on two queries of an operation is refused", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), orderBody)
		s.send(c.to("/orders?dry=1&lang=de")).want(t, 201, "")
		s.send(c.to("/orders?lang=de&dry=1")).wantReplay(t, true)
		s.send(c).want(t, 422, reprise.CodeKeyReused)
		s.wantRows("r", 1)
	})
	t.Run("W5 a stored answer says when it expires by the contract, the same every time", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.ledger.Retention = time.Minute })
		c := post(newKey(), orderBody)
		first := s.send(c)
		at, err := http.ParseTime(first.header.Get(wire.HeaderExpires))
		check(t, err)
		if left := time.Until(at); left < 23*time.Hour || left > 24*time.Hour {
			t.Errorf("expires in %v, want just under 24h", left)
		}
		if !strings.HasSuffix(first.header.Get(wire.HeaderExpires), " GMT") {
			t.Errorf("%q is no IMF-fixdate", first.header.Get(wire.HeaderExpires))
		}
		if again := s.send(c); again.header.Get(wire.HeaderExpires) != first.header.Get(wire.HeaderExpires) {
			t.Errorf("first %q, then %q", first.header.Get(wire.HeaderExpires), again.header.Get(wire.HeaderExpires))
		}
	})
	t.Run("an optional key that is missing runs once each time", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post("", orderBody).to("/notes")
		for range 2 {
			a := s.send(c)
			a.want(t, 201, "")
			a.wantReplay(t, false)
			if a.header.Get(wire.HeaderExpires) != "" {
				t.Error("an answer that is not stored says when it expires")
			}
		}
		s.wantRows("r", 2)
	})
	t.Run("a key on an operation that takes none is ignored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		for _, key := range []string{"k", "k", `"`, strings.Repeat("k", 9999)} {
			s.send(post(key, orderBody).to("/pings")).want(t, 201, "")
		}
		s.wantRows("r", 4)
	})
}

func TestAtomicOrder(t *testing.T) {
	t.Parallel()
	bad := `{"ref":"r","amount":-1}`

	t.Run("who asks comes first", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		a := s.send(call{method: "POST", path: "/orders", body: bad, header: http.Header{"Content-Type": {"text/plain"}}})
		a.want(t, 401, reprise.CodeUnauthenticated)
		if a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("WWW-Authenticate is %q", a.header.Get("WWW-Authenticate"))
		}
		if strings.Contains(a.body, "secret-reason") {
			t.Errorf("the reason is shown: %s", a.body)
		}
	})
	t.Run("an empty caller is none", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		a := s.send(post(newKey(), orderBody).with("Authorization", "Bearer dev-").by(""))
		a.want(t, 401, reprise.CodeUnauthenticated)
		s.wantRows("r", 0)
	})
	t.Run("the content comes before the key", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.send(post("", bad)).want(t, 400, reprise.CodeInvalid)
		s.send(post(`"`, bad)).want(t, 400, reprise.CodeInvalid)
		s.send(post("", orderBody)).want(t, 400, reprise.CodeKeyMissing)
		s.send(post(`"`, orderBody)).want(t, 400, reprise.CodeKeyInvalid)
		s.send(post(`"`, orderBody).to("/notes")).want(t, 400, reprise.CodeKeyInvalid)
		s.wantRows("r", 0)
	})
	t.Run("an invalid request burns no key", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		c := post(newKey(), bad)
		for range 2 {
			s.send(c).want(t, 400, reprise.CodeInvalid)
		}
		if n := s.runs.Load(); n != 0 {
			t.Errorf("work ran %d times for an invalid request", n)
		}
		s.send(post(c.key, orderBody)).want(t, 201, "")
		s.wantRows("r", 1)
	})
	t.Run("the content is checked on a repeat too", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		key := newKey()
		s.send(post(key, orderBody)).want(t, 201, "")
		s.send(post(key, bad)).want(t, 400, reprise.CodeInvalid)
		s.wantRows("r", 1)
	})
}

func TestAtomicFailure(t *testing.T) {
	t.Parallel()

	t.Run("L12 an error keeps nothing, and the key runs at once", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.whenWorking(func(context.Context, *sql.Tx) error { return errors.New("secret text of the database") })
		c := post(newKey(), orderBody)
		for range 2 {
			a := s.send(c)
			a.want(t, 500, reprise.CodeInternal)
			if got := a.header.Get(wire.HeaderRetryContext); got != "processed=?0" {
				t.Errorf("%s is %q, want processed=?0", wire.HeaderRetryContext, got)
			}
			if strings.Contains(a.body, "secret") {
				t.Errorf("the error's text is shown: %s", a.body)
			}
			p, _ := wire.ReadProblem(&http.Response{Header: a.header}, []byte(a.body))
			if p.Outcome != reprise.NotProcessed {
				t.Errorf("outcome %v, want not-processed", p.Outcome)
			}
		}
		s.wantRows("r", 0)
		if !strings.Contains(s.log.String(), "secret text of the database") {
			t.Errorf("the error is not in the log: %s", s.log)
		}
		s.whenWorking(nothingMore)
		a := s.send(c)
		a.want(t, 201, "")
		a.wantReplay(t, false)
		s.wantRows("r", 1)
	})
	t.Run("L10 an error of the database that is swallowed keeps nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.whenWorking(func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `INSERT INTO no_such_table VALUES (1)`)
			return nil
		})
		s.send(post(newKey(), orderBody)).want(t, 500, reprise.CodeInternal)
		s.wantRows("r", 0)
	})
	t.Run("L12 a panic keeps nothing, aborts the response, and frees the key", func(t *testing.T) {
		t.Parallel()
		for _, value := range []any{"boom", http.ErrAbortHandler} {
			s := setup(t)
			s.whenWorking(func(context.Context, *sql.Tx) error { panic(value) })
			c := post(newKey(), orderBody)
			if a, err := s.try(c); err == nil {
				t.Errorf("a panic of %v was answered %d %s", value, a.status, a.body)
			}
			s.wantRows("r", 0)
			if s.runs.Load() == 0 {
				t.Error("the work that panics was not called")
			}
			if logged := strings.Contains(s.log.String(), "boom"); logged != (value == "boom") {
				t.Errorf("panic of %v, log: %s", value, s.log)
			}
			s.whenWorking(nothingMore)
			s.send(c).want(t, 201, "")
			s.wantRows("r", 1)
		}
	})
	t.Run("L14 a decision is stored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		decided := false
		s.replace(ledgerhttp.Atomic(s.server, "create-order", decodeOrder,
			func(ctx context.Context, tx *sql.Tx, in order) (reprise.Result, error) {
				if decided {
					return s.createOrder(ctx, tx, in)
				}
				decided = true
				_, err := insertOrder(ctx, tx, order{Ref: "audit"})
				return ledgerhttp.ProblemResult(http.StatusConflict, "coupon-exhausted", "there is none left"), err
			}))
		c := post(newKey(), orderBody)
		first := s.send(c)
		first.want(t, 409, "coupon-exhausted")
		if want := "application/problem+json"; first.header.Get("Content-Type") != want {
			t.Errorf("Content-Type is %q, want %q", first.header.Get("Content-Type"), want)
		}
		again := s.send(c)
		again.wantReplay(t, true)
		again.wantSame(t, first)
		s.wantRows("r", 0)
		s.wantRows("audit", 1)
	})
	t.Run("L14 a refusal is not stored", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.whenWorking(func(context.Context, *sql.Tx) error {
			return fmt.Errorf("looking for it: %w", ledgerhttp.Refuse(http.StatusConflict, "payment-in-progress", "come back later"))
		})
		c := post(newKey(), orderBody)
		a := s.send(c)
		a.want(t, 409, "payment-in-progress")
		if got := a.header.Get(wire.HeaderRetryContext); got != "processed=?0" {
			t.Errorf("%s is %q, want processed=?0", wire.HeaderRetryContext, got)
		}
		if a.header.Get(wire.HeaderExpires) != "" {
			t.Error("an answer that is not stored says when it expires")
		}
		s.wantRows("r", 0)
		s.whenWorking(nothingMore)
		a = s.send(c)
		a.want(t, 201, "")
		a.wantReplay(t, false)
		s.wantRows("r", 1)
	})
	t.Run("L8 an answer over the cap is given whole, once, and never made again", func(t *testing.T) {
		t.Parallel()
		s := setup(t, func(o *options) { o.ledger.MaxBody = 10 })
		c := post(newKey(), orderBody)
		first := s.send(c)
		first.want(t, 201, "")
		if len(first.body) <= 10 {
			t.Fatalf("body %q does not test the cap", first.body)
		}
		if got := first.header.Get(wire.HeaderExpires); got != "" {
			t.Errorf("an answer that is not kept says that it expires %q", got)
		}
		again := s.send(c)
		again.want(t, 410, reprise.CodeKeyExpired)
		if !strings.Contains(again.body, `"reference":"/orders/1"`) {
			t.Errorf("the refusal does not name the result: %s", again.body)
		}
		s.wantRows("r", 1)
	})
	t.Run("a result without a status keeps nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		s.replace(ledgerhttp.Atomic(s.server, "create-order", decodeOrder,
			func(ctx context.Context, tx *sql.Tx, in order) (reprise.Result, error) {
				_, err := insertOrder(ctx, tx, in)
				return reprise.Result{}, err
			}))
		s.send(post(newKey(), orderBody)).want(t, 500, reprise.CodeInternal)
		s.wantRows("r", 0)
	})
}

func nothingMore(context.Context, *sql.Tx) error { return nil }
