// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"strings"
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

// Check judges the variables of a server.
func Check(variables map[string]string) error {
	s := server{mariadb: strings.Contains(variables["version"], "MariaDB")}
	return s.check(variables)
}

// Committed says what an answer to COMMIT means.
var Committed = committed
