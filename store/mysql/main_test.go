// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

func TestMain(m *testing.M) {
	// It reports every connection that a test has cut.
	_ = mysql.SetLogger(&mysql.NopLogger{})
	goleak.VerifyTestMain(dbtest.Suite{M: m})
}
