// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/reprise-go/reprise/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness[*sql.Tx]{
		Create: createSchema,
		Open:   openDriver,
		Plain: func(tb testing.TB, name string) storetest.Plain[*sql.Tx] {
			return storetest.PlainSQL(openDB(tb, name))
		},
		Age: age,
	})
}
