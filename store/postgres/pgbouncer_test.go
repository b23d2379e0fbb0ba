// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store/storetest"
)

// throughBouncer is the URL of a fresh database behind PgBouncer. A statement that
// was prepared on one of its connections may be executed on another, so the client
// library must prepare none.
func throughBouncer(tb testing.TB) string {
	tb.Helper()
	return dbtest.PgBouncer(tb).DSN(dbtest.PostgresDatabaseName(tb)) + "&default_query_exec_mode=exec"
}

// TestConformanceThroughPgBouncer runs the whole suite in transaction mode, where
// nothing of a session survives a transaction.
func TestConformanceThroughPgBouncer(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness[*sql.Tx]{
		Create: throughBouncer,
		Open:   openDriver,
		Plain: func(tb testing.TB, name string) storetest.Plain[*sql.Tx] {
			return storetest.PlainSQL(openDB(tb, name))
		},
		Age: age,
	})
}
