// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
)

// shop is a service with an operation of every kind.
func shop() []contract.Operation {
	return []contract.Operation{
		{
			Name: "create-order", Method: "POST", Path: "/orders",
			Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
			Effects: []contract.Effect{{Name: "order.created", By: contract.ByOutbox}},
		},
		{Name: "read-order", Method: "GET", Path: "/orders/{id}", Safety: contract.Safe},
		{
			Name: "change-order", Method: "PUT", Path: "/orders/{id}",
			Safety: contract.Idempotent, Key: contract.KeyOptional, Mode: contract.Atomic, Precondition: contract.IfMatch,
			Retention: time.Hour, Tombstone: 48 * time.Hour, Wait: 250 * time.Millisecond,
			Effects: []contract.Effect{{Name: "order.updated", By: contract.ByOutbox}},
		},
		{
			Name: "pay-order", Method: "POST", Path: "/orders/{id}/payments",
			Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Staged,
			FingerprintHeaders: []string{"Api-Version"}, Volatile: []string{"sent_at"},
			Effects: []contract.Effect{
				{Name: "charge", By: contract.ByDownstreamKey},
				{Name: "payment.captured", By: contract.ByOutbox},
			},
		},
		{Name: "send-mail", Method: "POST", Path: "/mails", Safety: contract.Unsafe},
	}
}

func mustNew(t *testing.T, ops ...contract.Operation) *contract.Contract {
	t.Helper()
	c, err := contract.New(ops...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("fills in defaults and leaves what is set", func(t *testing.T) {
		t.Parallel()
		c := mustNew(t, shop()...)
		order, _ := c.Operation("create-order")
		if order.Retention != 24*time.Hour || order.Tombstone != 720*time.Hour || order.Wait != 2*time.Second || order.Precondition != contract.PreconditionNone {
			t.Errorf("defaults are %+v", order)
		}
		change, _ := c.Operation("change-order")
		if change.Retention != time.Hour || change.Tombstone != 48*time.Hour || change.Wait != 250*time.Millisecond {
			t.Errorf("set values became %+v", change)
		}
		read, _ := c.Operation("read-order")
		if read.Retention != 0 || read.Tombstone != 0 || read.Wait != 0 || read.Key != contract.KeyNone || read.Mode != contract.ModeNone {
			t.Errorf("an operation without a key got %+v", read)
		}
	})

	t.Run("a retention beyond the default tombstone takes the tombstone along", func(t *testing.T) {
		t.Parallel()
		op := shop()[0]
		op.Retention = 2000 * time.Hour
		got, _ := mustNew(t, op).Operation(op.Name)
		if got.Tombstone != op.Retention {
			t.Errorf("tombstone is %v", got.Tombstone)
		}
	})

	t.Run("is not changed by its callers", func(t *testing.T) {
		t.Parallel()
		ops := shop()
		c := mustNew(t, ops...)
		ops[0].Effects[0].Name = "changed"
		c.Operations()[0].Effects[0].Name = "changed"
		got, _ := c.Operation("create-order")
		got.Effects[0].Name = "changed"
		matched, _ := c.Match("POST", "/orders")
		if matched.Effects[0].Name != "order.created" {
			t.Errorf("effect is called %q", matched.Effects[0].Name)
		}
	})

	t.Run("reports everything at once", func(t *testing.T) {
		t.Parallel()
		_, err := contract.New(contract.Operation{Name: "a b", Method: "post", Path: "orders"})
		for _, want := range []string{"Name", "Method", "Path", "Safety"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not speak of %s", err, want)
			}
		}
	})
}

// TestNewRefuses changes one thing about a valid operation at a time. Each error
// names the operation and the field, and says what to do.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	order, read, change, pay, mail := 0, 1, 2, 3, 4
	for name, c := range map[string]struct {
		op     int
		change func(op *contract.Operation)
		want   string
	}{
		"no name":             {order, func(op *contract.Operation) { op.Name = "" }, "Name is not valid; use 1 to 64"},
		"a name with a space": {order, func(op *contract.Operation) { op.Name = "create order" }, "Name is not valid"},
		"a long name":         {order, func(op *contract.Operation) { op.Name = reprise.Operation(strings.Repeat("a", 65)) }, "Name is not valid"},
		"no method":           {order, func(op *contract.Operation) { op.Method = "" }, "use an HTTP method in upper case"},
		"a method in lower case": {order, func(op *contract.Operation) { op.Method = "post" },
			"use an HTTP method in upper case"},
		"a path with a host":  {order, func(op *contract.Operation) { op.Path = "example.com/orders" }, "from its first slash"},
		"a path with a query": {order, func(op *contract.Operation) { op.Path = "/orders?dry=1" }, "without host or query"},
		"a broken wildcard":   {order, func(op *contract.Operation) { op.Path = "/orders/{id" }, "bad wildcard"},
		"a wildcard twice":    {order, func(op *contract.Operation) { op.Path = "/orders/{id}/{id}" }, "duplicate wildcard"},

		"undeclared safety": {mail, func(op *contract.Operation) { op.Safety = "" }, "say contract.Unsafe if nothing keeps"},
		"unknown safety":    {mail, func(op *contract.Operation) { op.Safety = "maybe" }, "use safe, idempotent, keyed or unsafe"},
		"unknown key rule":  {order, func(op *contract.Operation) { op.Key = "yes" }, "use none, optional or required"},
		"unknown precondition": {change, func(op *contract.Operation) { op.Precondition = "if-none-match" },
			"use none or if-match"},
		"unknown mode": {order, func(op *contract.Operation) { op.Mode = "magic" }, "use none, atomic or staged"},

		"keyed without a key rule": {order, func(op *contract.Operation) { op.Key, op.Mode = contract.KeyNone, contract.ModeNone },
			"let the operation take a key"},
		"keyed without a mode":     {order, func(op *contract.Operation) { op.Mode = contract.ModeNone }, "so use atomic, or staged"},
		"atomic without a key":     {mail, func(op *contract.Operation) { op.Mode = contract.Atomic }, "let the operation take one or leave Mode out"},
		"unsafe with a key":        {mail, func(op *contract.Operation) { op.Key, op.Mode = contract.KeyOptional, contract.Atomic }, "so declare it keyed"},
		"safe with a key":          {read, func(op *contract.Operation) { op.Key, op.Mode = contract.KeyOptional, contract.Atomic }, "so leave Key out"},
		"safe with a precondition": {read, func(op *contract.Operation) { op.Precondition = contract.IfMatch }, "so leave Precondition out"},
		"safe with an effect":      {read, func(op *contract.Operation) { op.Effects = []contract.Effect{{"mail", contract.ByOutbox}} }, "declare what it is"},
		"a GET that is not safe":   {read, func(op *contract.Operation) { op.Safety = contract.Unsafe }, "declare it safe, or use POST"},
		"a lifetime without a key": {mail, func(op *contract.Operation) { op.Retention = time.Hour }, "leave them out"},
		"a tombstone before its end": {change, func(op *contract.Operation) { op.Tombstone = time.Minute },
			"Tombstone (1m0s) is shorter than Retention (1h0m0s)"},
		"a negative retention": {order, func(op *contract.Operation) { op.Retention = -time.Hour }, "use a positive number of whole seconds"},
		"half a second":        {order, func(op *contract.Operation) { op.Retention = 500 * time.Millisecond }, "whole seconds"},
		"half a second of tombstone": {order, func(op *contract.Operation) { op.Tombstone = 100*time.Hour + time.Millisecond },
			"whole seconds"},
		"half a millisecond": {order, func(op *contract.Operation) { op.Wait = time.Millisecond / 2 }, "NoWait"},
		"a negative wait":    {order, func(op *contract.Operation) { op.Wait = -1 }, "not negative"},

		"an effect without a name":  {order, func(op *contract.Operation) { op.Effects[0].Name = "" }, "Effects[0].Name"},
		"an effect twice":           {pay, func(op *contract.Operation) { op.Effects[1].Name = "charge" }, "give each effect its own name"},
		"an effect without a means": {order, func(op *contract.Operation) { op.Effects[0].By = "" }, "outbox, downstream-key or probe"},
		"staged without a call":     {pay, func(op *contract.Operation) { op.Effects = op.Effects[1:] }, "declare each call to another system"},
		"atomic with a call":        {order, func(op *contract.Operation) { op.Effects[0].By = contract.ByProbe }, "cannot be rolled back"},

		"a precondition in the fingerprint": {pay, func(op *contract.Operation) { op.FingerprintHeaders = []string{"if-match"} }, "leave it out"},
		"credentials in the fingerprint":    {pay, func(op *contract.Operation) { op.FingerprintHeaders = []string{"Authorization"} }, "leave it out"},
		"no header name":                    {pay, func(op *contract.Operation) { op.FingerprintHeaders = []string{"api version"} }, "not the name of a header field"},
		"a volatile member twice":           {pay, func(op *contract.Operation) { op.Volatile = []string{"a", "a"} }, "name each top-level JSON member once"},
		"a fingerprint without a key":       {mail, func(op *contract.Operation) { op.Volatile = []string{"a"} }, "takes no key; leave them out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ops := shop()
			c.change(&ops[c.op])
			_, err := contract.New(ops...)
			if err == nil {
				t.Fatalf("accepted %+v", ops[c.op])
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
			if lines := strings.Split(err.Error(), "\n"); len(lines) > 1 {
				t.Errorf("one mistake gives %d errors:\n%v", len(lines), err)
			}
		})
	}

	t.Run("a name twice", func(t *testing.T) {
		t.Parallel()
		ops := shop()
		ops[1].Name = ops[0].Name
		if _, err := contract.New(ops...); err == nil || !strings.Contains(err.Error(), "give each its own") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("an address twice", func(t *testing.T) {
		t.Parallel()
		ops := shop()
		ops[4].Path = "/orders"
		_, err := contract.New(ops...)
		if err == nil || !strings.Contains(err.Error(), `"POST /orders" of operation "create-order"`) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("patterns of which neither is more specific", func(t *testing.T) {
		t.Parallel()
		a, b := shop()[4], shop()[4]
		a.Name, a.Path = "a", "/{x}/mails"
		b.Name, b.Path = "b", "/shops/{y}"
		if _, err := contract.New(a, b); err == nil || !strings.Contains(err.Error(), "neither is more specific") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestMatch(t *testing.T) {
	t.Parallel()
	ops := append(shop(),
		contract.Operation{Name: "root", Method: "GET", Path: "/{$}", Safety: contract.Safe},
		contract.Operation{Name: "latest-order", Method: "GET", Path: "/orders/latest", Safety: contract.Safe},
		contract.Operation{Name: "files", Method: "GET", Path: "/files/{path...}", Safety: contract.Safe},
	)
	c := mustNew(t, ops...)
	for _, row := range []struct{ method, path, want string }{
		{"POST", "/orders", "create-order"},
		{"GET", "/orders/1", "read-order"},
		{"HEAD", "/orders/1", "read-order"},
		{"PUT", "/orders/1", "change-order"},
		{"POST", "/orders/1/payments", "pay-order"},
		{"GET", "/orders/latest", "latest-order"},
		{"GET", "/files/a/b/", "files"},
		{"GET", "/", "root"},
		{"GET", "", "root"},
		{"GET", "/orders/a%2Fb", "read-order"},
		{"GET", "/orders/a%20b", "read-order"},
		{"GET", "/orders/%C3%BC", "read-order"},
		{"POST", "/%6Frders", "create-order"},

		{"POST", "/orders/", ""},
		{"POST", "/ORDERS", ""},
		{"DELETE", "/orders/1", ""},
		{"post", "/orders", ""},
		{"GET", "/orders/a/b", ""},
		{"GET", "/orders//payments", ""},
		{"GET", "/files/../orders/1", ""},
		{"GET", "/orders/%", ""},
		{"GET", "/orders/%zz", ""},
		{"GET", "orders/1", ""},
		{"GET", "/unknown", ""},
	} {
		op, ok := c.Match(row.method, row.path)
		if string(op.Name) != row.want || ok != (row.want != "") {
			t.Errorf("%s %q is %q, %v; want %q", row.method, row.path, op.Name, ok, row.want)
		}
	}
}

// TestMatchIsServeMux compares Match with what a server does that routes by the
// same patterns: an operation matches exactly when its handler runs.
func TestMatchIsServeMux(t *testing.T) {
	t.Parallel()
	ops := append(shop(), contract.Operation{Name: "files", Method: "GET", Path: "/files/{path...}", Safety: contract.Safe})
	c := mustNew(t, ops...)
	mux := http.NewServeMux()
	served := ""
	for _, op := range ops {
		mux.HandleFunc(op.Pattern(), func(http.ResponseWriter, *http.Request) { served = string(op.Name) })
	}
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PUT", "DELETE"}).Draw(t, "method")
		segments := rapid.SliceOfN(rapid.SampledFrom([]string{"orders", "payments", "files", "mails", "a", "", ".", "..", "%2F", "%6Frders", "a%20b", "%2e"}), 0, 4).Draw(t, "segments")
		path := "/" + strings.Join(segments, "/")
		served = ""
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "http://shop"+path, nil))
		op, _ := c.Match(method, path)
		if string(op.Name) != served {
			t.Fatalf("%s %s: Match says %q, the server ran %q", method, path, op.Name, served)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	c, err := contract.New(shop()...)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := c.Match("POST", "/orders/ord_1/payments"); !ok {
			b.Fatal("no match")
		}
	}
}
