// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Faults are the subject here; what is logged of them would bury a failure.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if spec := os.Getenv(victimVariable); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}
