// SPDX-License-Identifier: Apache-2.0

package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// Shadow is the database/sql side of lent transactions, for all connections of
// one driver: a *sql.DB without a database of its own, whose connections are
// guards. A driver that lends many short-lived connections makes one Shadow and
// a Conn for each. Safe for concurrent use.
type Shadow struct{ db *sql.DB }

// NewShadow returns a Shadow.
func NewShadow() *Shadow {
	db := sql.OpenDB(connector{})
	db.SetMaxIdleConns(64) // A guard is a few words; making one anew is what costs.
	return &Shadow{db: db}
}

// Conn puts raw under guard, as New does, but leaves the Shadow open when it is
// closed. It costs two small allocations.
func (s *Shadow) Conn(raw driver.Conn, rules Rules) *Conn {
	return &Conn{raw: raw, rules: rules, shadow: s}
}

// Close ends the Shadow. No transaction may be lent through it any more.
func (s *Shadow) Close() error { return s.db.Close() }

// connector gives database/sql as many guards as it asks for: each belongs to
// one transaction at a time, and one that has ended touches nothing.
type connector struct{}

func (connector) Connect(context.Context) (driver.Conn, error) { return &guard{}, nil }

func (connector) Driver() driver.Driver { return noDriver{} }

// noDriver keeps (*sql.DB).Driver from being nil. Nothing opens it by name.
type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) {
	return nil, errors.New("sqltx: a lent transaction has no driver to open")
}
