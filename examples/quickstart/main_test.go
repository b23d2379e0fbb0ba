// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-go/reprise"
)

// TestQuickstart asks twice under one key, and once under another.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "quickstart.db")
	service, err := newService(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(service)
	defer server.Close()

	post := func(key reprise.Key) string {
		resp, err := buy(t.Context(), server.URL+"/orders", key, `{"item":"tea"}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("got %s %q, %v", resp.Status, body, err)
		}
		return string(body)
	}
	key := reprise.NewKey()
	if first, again := post(key), post(key); first != again {
		t.Errorf("the repeat was answered %s, the first time it was %s", again, first)
	}
	post(reprise.NewKey())

	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var orders, events int
	err = db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM reprise_outbox)`).Scan(&orders, &events)
	if err != nil || orders != 2 || events != 2 {
		t.Errorf("%d orders and %d events for two intents, %v", orders, events, err)
	}
}

// TestReadme compares the README's code with this program, so that what it shows
// is what was compiled and run.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct{ file, name string }{
		{"main.go", "service"}, {"main.go", "handler"}, {"client.go", "client"},
	} {
		source, err := os.ReadFile(part.file)
		if err != nil {
			t.Fatal(err)
		}
		pieces := strings.Split(string(source), "// ["+part.name+"]\n")
		if len(pieces) != 3 {
			t.Fatalf("%s has no part between two lines // [%s]", part.file, part.name)
		}
		code := strings.TrimSpace(pieces[1])
		if !strings.Contains(string(readme), "```go\n"+code+"\n```") {
			t.Errorf("README.md does not show the part [%s] of %s as it is:\n%s", part.name, part.file, code)
		}
	}
}
