// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Suite{M: m}) }
