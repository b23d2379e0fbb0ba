// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store"
)

func TestDo(t *testing.T) {
	t.Parallel()
	in := intentOf("k", 1)
	do := func(s *shop, in reprise.Intent, work ledger.Work[*sql.Tx]) (ledger.Answer, error) {
		return s.ledger.Do(context.Background(), in, ledger.Options{}, work)
	}
	must := func(t *testing.T, s *shop, in reprise.Intent, work ledger.Work[*sql.Tx]) ledger.Answer {
		t.Helper()
		a, err := do(s, in, work)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	never := func(context.Context, *sql.Tx) (reprise.Result, error) { panic("executed") }
	check := func(t *testing.T, err error, code reprise.Code, o reprise.Outcome) *reprise.Error {
		t.Helper()
		e, ok := errors.AsType[*reprise.Error](err)
		if !ok || e.Code != code || e.Outcome != o {
			t.Fatalf("got %v (%v), want %s with outcome %v", err, reprise.OutcomeOf(err), code, o)
		}
		return e
	}

	t.Run("L2 L3 L4: executed once with its event, then replayed byte by byte", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		first := must(t, s, in, s.ordering("tea"))
		if first.Replayed || first.ExpiresAt.Before(time.Now().Add(23*time.Hour)) {
			t.Errorf("the first answer is %+v", first)
		}
		// Also in another process, and by a client that counts its attempts.
		for number := range 3 {
			again, err := s.reopen(nil).ledger.Do(t.Context(), in, ledger.Options{Number: number}, never)
			if err != nil || !again.Replayed || !reflect.DeepEqual(again.Result, first.Result) || !again.ExpiresAt.Equal(first.ExpiresAt) {
				t.Errorf("the repeat is %+v, %v; want %+v", again, err, first)
			}
		}
		s.effects(1)
	})

	t.Run("L4: every byte of a body survives, and empty is not missing", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for name, body := range map[reprise.Key][]byte{"all": all, "nil": nil, "empty": {}, "null": []byte("null"), "zero": []byte("0")} {
			work := func(context.Context, *sql.Tx) (reprise.Result, error) {
				return reprise.Result{Status: 200, Body: body}, nil
			}
			a := must(t, s, intentOf(name, 1), work)
			b := must(t, s, intentOf(name, 1), never)
			if !bytes.Equal(a.Result.Body, body) || !bytes.Equal(b.Result.Body, body) || b.Result.Status != 200 || !b.Replayed {
				t.Errorf("%s: got %q, then %+v", name, a.Result.Body, b)
			}
		}
	})

	t.Run("L5: only what belongs to the result is answered, then and now", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, &ledger.Config{Headers: []string{"x-cost"}})
		work := func(context.Context, *sql.Tx) (reprise.Result, error) {
			return reprise.Result{Status: 200, Header: map[string][]string{
				"content-type": {"text/plain"}, "ETag": {`"1"`}, "etag": {`"2"`}, "Link": {"</a>", "</b>"}, "X-Cost": {"7"},
				"Content-Encoding": {"gzip"}, "Vary": {},
				"Set-Cookie": {"session=1"}, "Www-Authenticate": {"Basic"}, "RateLimit": {"1"}, "Date": {"now"},
				"Content-Length": {"1"}, "Connection": {"close"}, "X-Other": {"1"},
			}}, nil
		}
		want := map[string][]string{
			"Content-Type": {"text/plain"}, "Etag": {`"1"`, `"2"`}, "Link": {"</a>", "</b>"}, "X-Cost": {"7"}, "Content-Encoding": {"gzip"},
		}
		for _, w := range []ledger.Work[*sql.Tx]{work, never} {
			if a := must(t, s, in, w); !maps.EqualFunc(a.Result.Header, want, slices.Equal) {
				t.Errorf("got %v, want %v", a.Result.Header, want)
			}
		}
	})

	t.Run("L5: a header value that could end its line is refused, and nothing is kept", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		for _, v := range []string{"a\r\nSet-Cookie: b", "a\nb", "a\x00b"} {
			_, err := do(s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				r, err := s.ordering("tea")(ctx, tx)
				r.Header["Location"] = []string{v}
				return r, err
			})
			check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		}
		s.effects(0)
	})

	t.Run("a result is frozen when the handler returns it, and each caller has its own", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		body, header := []byte("body"), map[string][]string{"Location": {"/1"}}
		a := must(t, s, in, func(context.Context, *sql.Tx) (reprise.Result, error) {
			return reprise.Result{Status: 201, Body: body, Header: header}, nil
		})
		body[0], header["Location"][0] = 'X', "X"
		if string(a.Result.Body) != "body" || a.Result.Header["Location"][0] != "/1" {
			t.Errorf("the handler changed the answer to %+v", a.Result)
		}
		a.Result.Body[0] = 'X'
		if b := must(t, s, in, never); string(b.Result.Body) != "body" {
			t.Errorf("a caller changed the record to %q", b.Result.Body)
		}
	})

	t.Run("L6: another fingerprint is refused, and the record is untouched", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		first := must(t, s, in, s.ordering("tea"))
		_, err := do(s, intentOf("k", 2), never)
		check(t, err, reprise.CodeKeyReused, reprise.NotProcessed)
		if again := must(t, s, in, never); !reflect.DeepEqual(again.Result, first.Result) {
			t.Errorf("the record became %+v", again.Result)
		}
		s.effects(1)
	})

	t.Run("K2 K3: keys differ by case, caller and operation", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		for i, other := range []func(*reprise.Intent){
			func(*reprise.Intent) {},
			func(i *reprise.Intent) { i.Key = "K" },
			func(i *reprise.Intent) { i.Key = "k " },
			func(i *reprise.Intent) { i.Caller = "bob" },
			func(i *reprise.Intent) { i.Operation = "pay" },
		} {
			in := in
			other(&in)
			if a := must(t, s, in, s.ordering("tea")); a.Replayed {
				t.Errorf("%+v was answered with the result of another intent", in)
			}
			s.effects(i + 1)
		}
	})

	t.Run("L8: an oversize result is answered in full once, and never executed again", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, &ledger.Config{MaxBody: 1000})
		large := bytes.Repeat([]byte("x"), 1001)
		a := must(t, s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			r, err := s.ordering("tea")(ctx, tx)
			r.Body = large
			return r, err
		})
		if !bytes.Equal(a.Result.Body, large) || a.Replayed {
			t.Errorf("the first answer has %d bytes", len(a.Result.Body))
		}
		_, err := do(s, in, never)
		if e := check(t, err, reprise.CodeKeyExpired, reprise.Unknown); e.Reference != "/orders/1" {
			t.Errorf("the reference is %q", e.Reference)
		}
		_, err = do(s, intentOf("k", 2), never)
		check(t, err, reprise.CodeKeyReused, reprise.NotProcessed)
		fits := must(t, s, intentOf("fits", 1), func(context.Context, *sql.Tx) (reprise.Result, error) {
			return reprise.Result{Status: 200, Body: large[:1000]}, nil
		})
		if again := must(t, s, intentOf("fits", 1), never); !bytes.Equal(again.Result.Body, fits.Result.Body) {
			t.Error("a result of exactly MaxBody bytes was not kept")
		}
		s.effects(1)
	})

	t.Run("L13: a client that leaves doesn't cancel its work", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		type name struct{}
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), name{}, "v"))
		a, err := s.ledger.Do(ctx, in, ledger.Options{}, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			leave()
			if ctx.Err() != nil || ctx.Value(name{}) != "v" {
				t.Errorf("the work's context ended with %v, and has the value %v", ctx.Err(), ctx.Value(name{}))
			}
			return s.ordering("tea")(ctx, tx)
		})
		if err != nil || a.Result.Status != 201 {
			t.Errorf("got %+v, %v", a, err)
		}
		must(t, s, in, never)
		s.effects(1)
	})

	t.Run("L13: a client that has left before does nothing", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		_, err := s.ledger.Do(ctx, in, ledger.Options{}, never)
		check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		if n := s.count("SELECT count(*) FROM reprise_ledger"); n != 0 {
			t.Errorf("%d records", n)
		}
	})

	t.Run("L13: work that outlives its deadline is rolled back, and the key is free", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, &ledger.Config{WorkTimeout: 50 * time.Millisecond})
		_, err := do(s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			r, err := s.ordering("tea")(ctx, tx)
			<-ctx.Done()
			return r, errors.Join(err, ctx.Err())
		})
		check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		s.effects(0)
		must(t, s, in, s.ordering("tea"))
		s.effects(1)
	})

	t.Run("L12: an error leaves nothing, and its cause is kept", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		broken := errors.New("broken")
		_, err := do(s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			r, err := s.ordering("tea")(ctx, tx)
			return r, errors.Join(err, broken)
		})
		check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		s.effects(0)
		if a := must(t, s, intentOf("k", 2), s.ordering("coffee")); a.Replayed {
			t.Error("the key was not free for a corrected request")
		}
		s.effects(1)
	})

	t.Run("L12: a panic leaves nothing, and goes on to the caller", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, err := do(s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				if _, err := s.ordering("tea")(ctx, tx); err != nil {
					t.Error(err)
				}
				panic("boom")
			})
			t.Errorf("returned %v", err)
		}()
		s.effects(0)
		must(t, s, in, s.ordering("tea"))
		s.effects(1)
	})

	t.Run("an error of the application is returned as it is, with the rollback as evidence", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		sentinel := &reprise.Error{Code: "order-paid", Detail: "paid already", Reference: "/orders/9"}
		for _, c := range []struct {
			name    string
			err     error
			code    reprise.Code
			outcome reprise.Outcome
		}{
			{"plain", sentinel, "order-paid", reprise.NotProcessed},
			{"wrapped", fmt.Errorf("pay: %w", sentinel), "order-paid", reprise.NotProcessed},
			{"with its own claim", &reprise.Error{Code: "declined", Outcome: reprise.Rejected}, "declined", reprise.Rejected},
			{"unknown on purpose", &reprise.Error{Code: reprise.CodeOutcomeUnknown}, reprise.CodeOutcomeUnknown, reprise.Unknown},
		} {
			_, err := do(s, in, func(context.Context, *sql.Tx) (reprise.Result, error) { return reprise.Result{}, c.err })
			e := check(t, err, c.code, c.outcome)
			if !errors.Is(err, c.err) {
				t.Errorf("%s: %v is not %v", c.name, err, c.err)
			}
			if c.code == "order-paid" && (e.Detail != sentinel.Detail || e.Reference != sentinel.Reference) {
				t.Errorf("%s: got %+v", c.name, e)
			}
		}
		if sentinel.Outcome != reprise.Unknown || sentinel.Err != nil {
			t.Errorf("the application's sentinel was changed to %+v", sentinel)
		}
	})

	t.Run("L14: decisions are stored", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		for _, status := range []int{200, 201, 204, 302, 400, 402, 404, 409, 410, 422, 499} {
			key := reprise.Key(fmt.Sprint(status))
			work := func(context.Context, *sql.Tx) (reprise.Result, error) { return reprise.Result{Status: status}, nil }
			must(t, s, intentOf(key, 1), work)
			if a := must(t, s, intentOf(key, 1), never); a.Result.Status != status || !a.Replayed {
				t.Errorf("%d became %+v", status, a)
			}
		}
	})

	t.Run("L14: what says nothing of the intent is answered and not stored", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		answering := func(status int) ledger.Work[*sql.Tx] {
			return func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				r, err := s.ordering("tea")(ctx, tx)
				r.Status = status
				return r, err
			}
		}
		for _, status := range []int{401, 403, 408, 412, 425, 428, 429, 500, 502, 503, 599} {
			if a := must(t, s, in, answering(status)); a.Result.Status != status || a.Replayed || !a.ExpiresAt.IsZero() || len(a.Result.Body) == 0 {
				t.Errorf("%d was answered as %+v", status, a)
			}
		}
		must(t, s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
			r, err := s.ordering("tea")(ctx, tx)
			r.Status = 404
			return reprise.Result{}, errors.Join(err, fmt.Errorf("shop: %w", ledger.Refuse(r)))
		})
		s.effects(0)
		if got := s.ledger.Stats(); got.Refused != 12 || got.Executed != 0 {
			t.Errorf("counted as %+v", got)
		}
		for _, status := range []int{0, 100, 199, 600, 1000, -1} {
			_, err := do(s, in, answering(status))
			check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		}
		s.effects(0)
		must(t, s, in, answering(201))
		s.effects(1)
	})

	t.Run("L10: a handler that ends the transaction itself has no effect", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		for name, end := range map[string]func(ctx context.Context, tx *sql.Tx) error{
			"Commit":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			"Rollback": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
			"COMMIT": func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "COMMIT")
				return err
			},
		} {
			_, err := do(s, in, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				r, err := s.ordering("tea")(ctx, tx)
				if err != nil {
					t.Error(err)
				}
				_ = end(ctx, tx)
				return r, nil
			})
			if o := reprise.OutcomeOf(err); err == nil || o != reprise.NotProcessed {
				t.Errorf("%s: got %v (%v)", name, err, o)
			}
			s.effects(0)
		}
	})

	t.Run("L10: a deferred Rollback fails work that returns nil, and no other", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, nil)
		deferring := func(then func() (reprise.Result, error)) ledger.Work[*sql.Tx] {
			return func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				defer func() { _ = tx.Rollback() }()
				if _, err := s.ordering("tea")(ctx, tx); err != nil {
					t.Error(err)
				}
				return then()
			}
		}
		_, err := do(s, in, deferring(func() (reprise.Result, error) { return reprise.Result{Status: 201}, nil }))
		check(t, err, reprise.CodeInternal, reprise.NotProcessed)
		if !strings.Contains(err.Error(), `don't "defer tx.Rollback()"`) {
			t.Errorf("the error does not say what to do: %v", err)
		}
		declined := &reprise.Error{Code: "declined", Status: 402}
		_, err = do(s, in, deferring(func() (reprise.Result, error) { return reprise.Result{}, declined }))
		check(t, err, "declined", reprise.NotProcessed)
		a, err := do(s, in, deferring(func() (reprise.Result, error) {
			return reprise.Result{}, ledger.Refuse(reprise.Result{Status: 404})
		}))
		if err != nil || a.Result.Status != 404 {
			t.Errorf("a refusal came out as %d, %v", a.Result.Status, err)
		}
		s.effects(0)
		must(t, s, in, s.ordering("tea"))
		s.effects(1)
	})

	t.Run("L7: a commit whose answer was lost is found by its token, in a real database", func(t *testing.T) {
		t.Parallel()
		for kept, want := range map[bool]int{true: 1, false: 2} {
			s := openShop(t, nil)
			lossy := &lossy{Driver: s.driver, kept: kept}
			l, err := ledger.New[*sql.Tx](lossy, nil)
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			a, err := l.Do(t.Context(), in, ledger.Options{}, func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
				runs++
				return s.ordering("tea")(ctx, tx)
			})
			if err != nil || a.Replayed || a.Result.Status != 201 || runs != want || lossy.lost != 1 {
				t.Errorf("kept=%v: got %+v, %v after %d runs and %d lost answers", kept, a, err, runs, lossy.lost)
			}
			s.effects(1)
		}
	})

	t.Run("L15: a database that another process keeps locked is 503 within the wait", func(t *testing.T) {
		t.Parallel()
		s := openShop(t, &ledger.Config{Wait: 200 * time.Millisecond})
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = do(s, in, never)
		check(t, err, reprise.CodeStoreUnavailable, reprise.NotProcessed)
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		must(t, s, in, s.ordering("tea"))
		s.effects(1)
	})
}

// lossy loses the answer of the first COMMIT, which was made or not.
type lossy struct {
	store.Driver[*sql.Tx]
	kept bool
	lost int
}

func (d *lossy) Execute(ctx context.Context, c store.Claim, work func(context.Context, *sql.Tx) (store.Completion, error)) (store.Entry, bool, error) {
	if d.lost > 0 {
		return d.Driver.Execute(ctx, c, work)
	}
	d.lost++
	var failed error
	_, _, err := d.Driver.Execute(ctx, c, func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		done, err := work(ctx, tx)
		if failed = err; err == nil && !d.kept {
			err = errors.New("the connection broke")
		}
		return done, err
	})
	if failed != nil || d.kept && err != nil {
		return store.Entry{}, false, err
	}
	return store.Entry{}, false, store.ErrCommitUnknown
}

func TestOnce(t *testing.T) {
	t.Parallel()
	s := openShop(t, nil)
	for n := range 2 {
		r, err := s.ledger.Once(t.Context(), s.ordering("tea"))
		if err != nil || r.Status != 201 || r.Header["Location"][0] != fmt.Sprintf("/orders/%d", n+1) {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	r, err := s.ledger.Once(t.Context(), func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		r, err := s.ordering("tea")(ctx, tx)
		r.Status = 412
		return r, err
	})
	if err != nil || r.Status != 412 {
		t.Errorf("got %+v, %v; want 412 after a rollback", r, err)
	}
	broken := errors.New("broken")
	_, err = s.ledger.Once(t.Context(), func(ctx context.Context, tx *sql.Tx) (reprise.Result, error) {
		r, err := s.ordering("tea")(ctx, tx)
		return r, errors.Join(err, broken)
	})
	if !errors.Is(err, broken) || reprise.OutcomeOf(err) != reprise.NotProcessed {
		t.Errorf("got %v", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.ledger.Once(ctx, s.ordering("tea")); reprise.OutcomeOf(err) != reprise.NotProcessed || err == nil {
		t.Errorf("a client that had left got %v", err)
	}
	s.effects(2)
	if n := s.count("SELECT count(*) FROM reprise_ledger"); n != 0 {
		t.Errorf("%d records without a key", n)
	}
}
