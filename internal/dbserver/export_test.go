// SPDX-License-Identifier: Apache-2.0

package dbserver

// Sweep removes what dead processes have left in a directory.
func Sweep(base string) { sweep(base) }
