// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/mysql"
	"github.com/reprise-go/reprise/store/storetest"
)

// manners are the ways in which a driver may speak to a server. The processes of
// one suite take turns with them, so that each rule is checked between them too.
var manners = []struct {
	name, params string
	mysql        bool
}{
	{name: "together", params: "?multiStatements=true&interpolateParams=true"},
	{name: "one by one", params: "?clientFoundRows=true&parseTime=true&loc=Local"},
	{name: "as with MySQL", params: "?multiStatements=true", mysql: true},
}

var opened atomic.Int64

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness[*sql.Tx]{
		Create: dbtest.MariaDBDatabase,
		Open: func(tb testing.TB, name string) (store.Driver[*sql.Tx], func()) {
			tb.Helper()
			m := manners[int(opened.Add(1))%len(manners)]
			d := newDriver(tb, name+m.params)
			if m.mysql {
				d.SpeakMySQL()
			}
			return d, func() { _ = d.Close() }
		},
		Plain: func(tb testing.TB, name string) storetest.Plain[*sql.Tx] {
			tb.Helper()
			return storetest.PlainSQL(openDB(tb, name))
		},
		Age: age,
	})
}

// newDriver returns a driver on a database that it has migrated.
func newDriver(tb testing.TB, dsn string) *mysql.Driver {
	tb.Helper()
	d, err := mysql.New(tb.Context(), openDB(tb, dsn), nil)
	if err == nil {
		err = migrate.Up(tb.Context(), d)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

func openDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// age rewrites every time that the driver has stored in order to judge by it.
func age(by time.Duration) (statements []string) {
	for _, columns := range []string{
		"reprise_ledger claimed_at", "reprise_run lease_until", "reprise_result completed_at expires_at tombstone_until due_at",
		"reprise_inbox received_at",
		"reprise_outbox enqueued_at", "reprise_outbox_hold next_at", "reprise_outbox_slot lease_until",
	} {
		table, names, _ := strings.Cut(columns, " ")
		for name := range strings.FieldsSeq(names) {
			statements = append(statements, fmt.Sprintf("UPDATE %s SET %s = %s - INTERVAL %d MICROSECOND", table, name, name, by.Microseconds()))
		}
	}
	return statements
}
