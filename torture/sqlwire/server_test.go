// SPDX-License-Identifier: Apache-2.0

package sqlwire_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// listen starts a proxy to the server of a data source name, and returns the name
// with the proxy's address in the server's place.
func listen(t *testing.T, protocol sqlwire.Protocol, dsn string) (p *sqlwire.Proxy, through string) {
	t.Helper()
	addr := address(t, dsn)
	p, err := sqlwire.Listen(t.Context(), protocol, "127.0.0.1:0", addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, strings.Replace(dsn, addr, p.Addr(), 1)
}

// address is the server's host and port.
func address(t *testing.T, dsn string) string {
	t.Helper()
	if u, err := url.Parse(dsn); err == nil && u.Scheme == "postgres" {
		return u.Host
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		t.Fatal(err)
	}
	return c.Addr
}

// record lists the points that a proxy reaches, and checks their numbers.
func record(t *testing.T, p *sqlwire.Proxy) (points func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	p.SetPlan(func(at sqlwire.Point) sqlwire.Fault {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(at.When, " ", at.Statement))
		if at.Number != int64(len(got)) {
			t.Errorf("point %d has the number %d", len(got), at.Number)
		}
		return sqlwire.Fault{}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

// samePoints compares what was recorded.
func samePoints(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the points are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
