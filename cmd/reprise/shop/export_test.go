// SPDX-License-Identifier: Apache-2.0

package shop

import "time"

// Moment is a moment as an order shows it.
func Moment(t time.Time) any { return moment{t} }

// DSN is what the database/sql driver is given.
func DSN(u URL) string { return u.dsn }
