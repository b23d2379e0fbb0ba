// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package outbox_test

import "errors"

const processDir = "REPRISE_TEST_RELAY_DIR"

// process needs signals.
func process(string) error { return errors.ErrUnsupported }
