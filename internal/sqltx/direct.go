// SPDX-License-Identifier: Apache-2.0

package sqltx

import "database/sql/driver"

// Direct lends the raw connection to the owner for as long as use runs. No
// statement of a handler runs meanwhile.
func (c *Conn) Direct(use func(raw driver.Conn) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return use(c.raw)
}
