// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// Kind names what the proxy does at a point.
type Kind string

const (
	// Pass goes on as if there were no proxy.
	Pass Kind = "pass"
	// Reset ends the client's connection with RST and the server's with FIN.
	Reset Kind = "reset"
	// Close ends both connections in good order, with FIN.
	Close Kind = "close"
	// Blackhole says nothing any more, to neither side, and leaves both connections
	// open: the server goes on holding the transaction and its locks. It ends when
	// Fault.Release is closed, with Reset.
	Blackhole Kind = "blackhole"
	// Answer answers Fault.Error. Before a statement it stands for a statement that
	// the server refused, and the transaction is left as the server leaves it after
	// that error. After a statement it must be an error that ends the session,
	// because a server does not execute a statement and refuse it too.
	Answer Kind = "answer"
	// Cancel passes the message on and then, when Fault.Release is closed, asks the
	// server to cancel it, as the PostgreSQL protocol provides. Whether that comes in
	// time is for the server to say. Before only.
	Cancel Kind = "cancel"
)

// Point is one side of one boundary. Its numbers count the points of one Proxy.
type Point struct {
	crashpoint.Boundary

	// Connection counts the connections of the proxy from 1.
	Connection int64
	// Session is what the server calls this session: the process of its backend in
	// PostgreSQL, the connection id in MySQL; 0 before there is one.
	Session uint32
}

// Fault is what a Plan decides for one point. The zero value passes.
type Fault struct {
	// Kind of fault. Defaults to Pass.
	Kind Kind
	// Error to answer, for Answer.
	Error ServerError
	// Release ends a Blackhole; without it, that ends with the proxy. A Cancel waits
	// for it; without it, for nothing.
	Release <-chan struct{}
}

// Plan decides what happens at a point, on the goroutine that serves the
// connection: as long as it does not return, the connection is held there. It is
// called concurrently for different connections.
type Plan func(Point) Fault

// ServerError is an error as a server answers it.
type ServerError struct {
	// Number is MySQL's error number; 0 for PostgreSQL.
	Number uint16
	// SQLState has five characters.
	SQLState string
	Message  string
	// EndsSession says that the server closes the connection after it.
	EndsSession bool
	// EndsTransaction says that the transaction is rolled back when the client
	// reads it. MySQL only: in PostgreSQL every error ends the transaction.
	EndsTransaction bool
}

// Errors of PostgreSQL.
var (
	SerializationFailure = ServerError{SQLState: "40001", Message: "could not serialize access due to concurrent update"}
	DeadlockDetected     = ServerError{SQLState: "40P01", Message: "deadlock detected"}
	ReadOnlyTransaction  = ServerError{SQLState: "25006", Message: "cannot execute INSERT in a read-only transaction"}
	TooManyConnections   = ServerError{SQLState: "53300", Message: "sorry, too many clients already", EndsSession: true}
	AdminShutdown        = ServerError{SQLState: "57P01", Message: "terminating connection due to administrator command", EndsSession: true}
)

// Errors of MySQL and MariaDB.
var (
	Deadlock = ServerError{Number: 1213, SQLState: "40001", EndsTransaction: true,
		Message: "Deadlock found when trying to get lock; try restarting transaction"}
	LockWaitTimeout = ServerError{Number: 1205, SQLState: "HY000", Message: "Lock wait timeout exceeded; try restarting transaction"}
	NotInCluster    = ServerError{Number: 1047, SQLState: "08S01", Message: "WSREP has not yet prepared node for application use"}
	ReadOnlyServer  = ServerError{Number: 1290, SQLState: "HY000",
		Message: "The MariaDB server is running with the --read-only option so it cannot execute this statement"}
	ServerShutdown = ServerError{Number: 1053, SQLState: "08S01", Message: "Server shutdown in progress", EndsSession: true}
)

// Protocol is what a database speaks.
type Protocol struct {
	name  string
	serve func(context.Context, *link) error
	// client and server return functions that read one message each.
	client, server func() reader
}

// String returns the name of the protocol.
func (p Protocol) String() string { return p.name }

// errOver ends a connection that the proxy or its peer is done with.
var errOver = errors.New("sqlwire: the connection is over")
