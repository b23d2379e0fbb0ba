// SPDX-License-Identifier: Apache-2.0

package pg

// Announce tells the relays of this process that messages were committed.
func Announce(c *Core) { c.wakes.Announce() }
