// SPDX-License-Identifier: Apache-2.0

package mysql

// SpeakMySQL makes the driver use the statements that it uses on MySQL. MariaDB
// understands them too.
func (d *Driver) SpeakMySQL() { d.server.mariadb = false }

// Server tells what New has found out.
func (d *Driver) Server() (mariadb, galera, multi bool) {
	return d.server.mariadb, d.server.galera, d.server.multi
}

// Number returns the server's error number.
var Number = number

// Split cuts a migration into its statements.
var Split = split
