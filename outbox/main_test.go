// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the main function of the relay processes that tests start and
// kill: see process_test.go.
func TestMain(m *testing.M) {
	if dir := os.Getenv(processDir); dir != "" {
		if err := process(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
