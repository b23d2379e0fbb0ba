// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/torture/crashpoint"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

// Mode is one way in which the world fails at a point.
type Mode struct {
	Name string
	// Process says that the instance has to be a process of its own.
	Process bool
	// Lasting says that it strikes at every later point of the attempt too.
	Lasting bool
	// applies says at which points it is possible.
	applies func(sqlwire.Point) bool
	// strike carries it out.
	strike func(*wireInstance, sqlwire.Point) sqlwire.Fault
}

// Modes that every database has.
var (
	// Reset: the connection is reset.
	Reset = Mode{Name: "reset", applies: everywhere, strike: kind(sqlwire.Reset)}
	// Close: the connection ends in good order.
	Close = Mode{Name: "close", applies: everywhere, strike: kind(sqlwire.Close)}
	// Down: the connection is reset, and so is every other until the attempt is
	// over, as if the database were gone.
	Down = Mode{Name: "down", Lasting: true, applies: everywhere, strike: kind(sqlwire.Reset)}
	// Partition: neither side hears of the other, and the server goes on holding the
	// transaction until the partition heals.
	Partition = Mode{Name: "partition", applies: everywhere, strike: (*wireInstance).partition}
	// Freeze: what is under way arrives, but only after others have tried.
	Freeze = Mode{Name: "freeze", applies: everywhere, strike: (*wireInstance).freeze}
	// Terminate: the server ends the session, by the order of an administrator.
	Terminate = Mode{Name: "terminate", applies: before, strike: (*wireInstance).terminate}
	// Interrupt: the server is asked to cancel the statement.
	Interrupt = Mode{Name: "interrupt", applies: before, strike: (*wireInstance).interrupt}
	// Kill: SIGKILL of the service.
	Kill = Mode{Name: "kill", Process: true, applies: everywhere, strike: (*wireInstance).kill}
	// Stop: SIGSTOP of the service, which goes on after others have tried.
	Stop = Mode{Name: "stop", Process: true, applies: everywhere, strike: (*wireInstance).stop}
)

// Refuse answers an error in the place of a statement; one that ends the session
// also in the place of its answer.
func Refuse(e sqlwire.ServerError) Mode {
	name := e.SQLState
	if e.Number != 0 {
		name = fmt.Sprint(e.Number)
	}
	return Mode{
		Name: "error " + name,
		applies: func(at sqlwire.Point) bool {
			if e.EndsSession {
				return at.When == crashpoint.Before || e != sqlwire.TooManyConnections
			}
			return before(at) && refusable(at.Statement)
		},
		strike: func(*wireInstance, sqlwire.Point) sqlwire.Fault {
			return sqlwire.Fault{Kind: sqlwire.Answer, Error: e}
		},
	}
}

// refusable says whether a server can refuse a statement and keep the session.
func refusable(statement string) bool {
	statement = strings.ToUpper(strings.TrimSpace(statement))
	return statement != "CONNECT" && statement != "SYNC" && !strings.HasPrefix(statement, "ROLLBACK")
}

func everywhere(sqlwire.Point) bool { return true }

func before(at sqlwire.Point) bool { return at.When == crashpoint.Before && at.Session != 0 }

func kind(k sqlwire.Kind) func(*wireInstance, sqlwire.Point) sqlwire.Fault {
	return func(*wireInstance, sqlwire.Point) sqlwire.Fault { return sqlwire.Fault{Kind: k} }
}
