// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/cmd/reprise/psp"
	"github.com/reprise-go/reprise/cmd/reprise/shop"
)

// patience is how long a test waits for what must happen soon.
const patience = 5 * time.Minute

// world is a shop and a provider, with what a test needs to ask of them. The
// provider is not the builtin one, so that its requests can be looked at.
type world struct {
	t          *testing.T
	api, admin string
	provider   *provider
	shop       *shop.Shop
}

// open starts a shop in this process. change may alter its configuration.
func open(t *testing.T, on kind, change ...func(*shop.Config)) *world {
	t.Helper()
	p := openProvider(t)
	c := shop.Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", DB: on.fresh(t), PSP: p.url,
		Logger: testLogger(t),
	}
	for _, f := range change {
		f(&c)
	}
	s, err := shop.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the shop ended with: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, provider: p, shop: s}
	w.api, w.admin = s.URLs()
	return w
}

// in is w for a subtest, which fails in its place.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	in := *w
	in.t = t
	return &in
}

// provider is a payment provider that keeps what it was sent.
type provider struct {
	url string
	psp *psp.Provider

	mu   sync.Mutex
	sent []sentCharge
	// status and body are what a charge is answered with in the provider's place,
	// which does not hear of it; status 0 leaves it to the provider.
	status int
	body   string
}

// sentCharge is one charge as it reached the provider.
type sentCharge struct{ key, body string }

func openProvider(t *testing.T) *provider {
	t.Helper()
	p := new(provider)
	var err error
	p.psp, err = psp.Open(t.Context(), psp.Config{
		Path: filepath.Join(t.TempDir(), "psp.db"), DeclineOver: psp.DefaultDeclineOver,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := p.psp.Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/charges" {
			body, _ := io.ReadAll(r.Body)
			p.mu.Lock()
			p.sent = append(p.sent, sentCharge{r.Header.Get("Idempotency-Key"), string(body)})
			status, instead := p.status, p.body
			p.mu.Unlock()
			if status != 0 {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, instead)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.psp.Release()
		s.Close()
		if err := p.psp.Close(); err != nil {
			t.Error(err)
		}
	})
	p.url = s.URL
	return p
}

// answer has every charge answered without the provider, or by it again if status
// is 0.
func (p *provider) answer(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body = status, body
}

// charges returns what the provider was sent so far.
func (p *provider) charges() []sentCharge {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]sentCharge(nil), p.sent...)
}

// call is one request to the API.
type call struct {
	method, path string
	// key is the value of the Idempotency-Key field; "" sends none.
	key string
	// body is a string as it is, or anything else as JSON; nil sends none.
	body any
	// caller defaults to alice.
	caller string
	header map[string]string
}

// reply is an answer, read to its end. Status 0 means that there was none.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) member(name string) any {
	var m map[string]any
	_ = json.Unmarshal([]byte(r.body), &m)
	return m[name]
}

func (r reply) text(name string) string {
	s, _ := r.member(name).(string)
	return s
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

func (r reply) String() string { return fmt.Sprintf("%d %v %s", r.status, r.header, r.body) }

// do sends c and returns the answer. It never repeats anything.
func (w *world) do(c call) reply {
	w.t.Helper()
	if c.caller == "" {
		c.caller = "alice"
	}
	header := map[string]string{"Authorization": "Bearer dev-" + c.caller}
	if c.key != "" {
		header["Idempotency-Key"] = c.key
	}
	if c.body != nil {
		header["Content-Type"] = "application/json"
	}
	maps.Copy(header, c.header)
	return send(w.t, c.method, w.api+c.path, header, c.body)
}

// oneShot never sends a request twice and never keeps a connection.
var oneShot = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func send(t *testing.T, method, address string, header map[string]string, body any) reply {
	t.Helper()
	text, ok := body.(string)
	if body != nil && !ok {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	var content io.Reader
	if body != nil {
		content = strings.NewReader(text)
	}
	req, err := http.NewRequest(method, address, content)
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := oneShot.Do(req)
	if err != nil {
		return reply{}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

type object map[string]any

func orderBody(ref string) object {
	return object{"ref": ref, "sku": "cup", "quantity": 1, "amount": 1200, "currency": "EUR"}
}

// order makes an order and returns its path.
func (w *world) order(ref string) string {
	w.t.Helper()
	r := w.do(call{method: "POST", path: "/orders", key: newKey(), body: orderBody(ref)})
	w.want(r, 201, "")
	return r.header.Get("Location")
}

func paymentBody(ref string) object { return object{"ref": ref, "source": "card"} }

func (w *world) pay(order, key, ref string) reply {
	w.t.Helper()
	return w.do(call{method: "POST", path: order + "/payments", key: key, body: paymentBody(ref)})
}

func (w *world) get(path string) reply {
	w.t.Helper()
	return w.do(call{method: "GET", path: path})
}

// want demands a status and, if code is not empty, a whole problem document.
func (w *world) want(r reply, status int, code string) {
	w.t.Helper()
	if r.status != status {
		w.t.Fatalf("want %d %s, got %v", status, code, r)
	}
	if code != "" {
		wantProblem(w.t, r, status, code)
	}
}

func wantProblem(t *testing.T, r reply, status int, code string) {
	t.Helper()
	switch {
	case r.status != status || r.text("code") != code:
		t.Fatalf("want %d %s, got %v", status, code, r)
	case r.header.Get("Content-Type") != "application/problem+json",
		r.text("type") != "urn:reprise:problem:"+code, r.text("title") == "", r.text("outcome") == "",
		r.member("status") != float64(status):
		t.Fatalf("not a problem document of %s: %v", code, r)
	}
}

// effects is what /effects answers.
type effects struct {
	Orders, Payments, Charges, Redemptions int
	Events, Deliveries                     map[string]int
}

type counts = map[string]int

func effectsOf(t *testing.T, admin, caller, ref string) effects {
	t.Helper()
	r := send(t, "GET", admin+"/effects?"+url.Values{"caller": {caller}, "ref": {ref}}.Encode(), nil, nil)
	var e effects
	if err := json.Unmarshal([]byte(r.body), &e); err != nil || r.status != 200 {
		t.Fatalf("GET /effects: %v (%v)", r, err)
	}
	return e
}

// settle waits until every event of ref was delivered, and demands exactly these
// effects: the deliveries must be those of the events.
func (w *world) settle(ref string, want effects) {
	w.t.Helper()
	wantEffects(w.t, w.admin, ref, want)
}

func wantEffects(t *testing.T, admin, ref string, want effects) {
	t.Helper()
	if want.Events == nil {
		want.Events = counts{}
	}
	want.Deliveries = want.Events
	var got effects
	if !eventually(func() bool {
		got = effectsOf(t, admin, "alice", ref)
		return reflect.DeepEqual(got, want)
	}) {
		t.Fatalf("effects of %s\n got %+v\nwant %+v", ref, got, want)
	}
	var stuck []map[string]any
	if !eventually(func() bool {
		stuck = pages(t, admin, "/ledger?state=in_progress")
		return len(stuck) == 0
	}) {
		t.Fatalf("something is stuck in progress: %v", stuck)
	}
}

// eventually asks again and again until it is told yes, or patience ends.
func eventually(ask func() bool) bool {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if ask() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// pages walks a list to its end.
func pages(t *testing.T, base, path string) []map[string]any {
	t.Helper()
	all := []map[string]any{}
	for {
		r := send(t, "GET", base+path, map[string]string{"Authorization": "Bearer dev-alice"}, nil)
		var page struct {
			Items []map[string]any
			Next  *string
		}
		if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != 200 || page.Items == nil {
			t.Fatalf("GET %s: %v (%v)", path, r, err)
		}
		all = append(all, page.Items...)
		if page.Next == nil {
			return all
		}
		path = *page.Next
	}
}

// fault orders faults at the provider.
func (p *provider) fault(t *testing.T, n int, f psp.Fault) {
	t.Helper()
	r := send(t, "POST", p.url+"/faults", map[string]string{"Content-Type": "application/json"}, object{"next": n, "fault": f})
	if r.status != 200 {
		t.Fatal(r)
	}
}

// fired is how often a fault has happened.
func (p *provider) fired(t *testing.T, f psp.Fault) int {
	t.Helper()
	var report struct{ Fired map[psp.Fault]int }
	if err := json.Unmarshal([]byte(send(t, "GET", p.url+"/faults", nil, nil).body), &report); err != nil {
		t.Fatal(err)
	}
	return report.Fired[f]
}

// testLogger shows the shop's warnings if the test fails.
func testLogger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
