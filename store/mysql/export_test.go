// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
)

// SpeakMySQL makes the driver use the statements that it uses on MySQL. MariaDB
// understands them too.
func (d *Driver) SpeakMySQL() { d.server.mariadb = false }

// RollBack ends a lent transaction behind the driver's back.
func (d *Driver) RollBack(ctx context.Context, tx *sql.Tx) error {
	s, _ := d.lent.Load(tx)
	_, err := s.(*session).conn.Text(ctx, "ROLLBACK")
	return err
}

// Server tells what New has found out.
func (d *Driver) Server() (mariadb, galera, multi bool) {
	return d.server.mariadb, d.server.galera, d.server.multi
}

// Number returns the server's error number.
var Number = number

// Split cuts a migration into its statements.
var Split = split
