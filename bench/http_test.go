// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// The load generator writes its requests by hand, so a real server must read them
// as they are meant, one after the other on one connection.
func TestConnectionPosts(t *testing.T) {
	t.Parallel()
	var keys []reprise.Key
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var content struct{ Ref string }
		if err := json.NewDecoder(r.Body).Decode(&content); err != nil || r.URL.Path != "/orders" || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		key := r.Header.Get(wire.HeaderKey)
		if content.Ref != key || r.Header.Get(wire.HeaderRetryContext) != "attempt=2" {
			t.Errorf("key %q, content %q, context %q", key, content.Ref, r.Header.Get(wire.HeaderRetryContext))
		}
		if strings.HasPrefix(key, "bad") {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		keys = append(keys, reprise.Key(key))
		_, _ = w.Write([]byte(key))
	}))
	defer s.Close()
	c, err := dial(t.Context(), s.Listener.Addr().String(), "/orders")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for n := range 3 {
		key := reprise.NewKey()
		if err := c.post(key, 2); err != nil || string(c.answer) != string(key) {
			t.Errorf("answer %q: %v", c.answer, err)
		}
		if len(keys) != n+1 || keys[n] != key {
			t.Errorf("the server has seen %q, the last one sent is %q", keys, key)
		}
	}
	if err := c.post("bad", 2); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("a refusal was taken for an answer: %v", err)
	}
}
