// SPDX-License-Identifier: Apache-2.0

//go:build !failpoint

package failpoint

// Enabled reports whether this build can die at its failpoints.
const Enabled = false

// Hit does nothing in this build.
func Hit(string) {}
