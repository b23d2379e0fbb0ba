// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Faults are the subject here; what is logged of them would bury a failure.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
