// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// hollow returns a connection that was never one to a server, and is closed: its
// Config and its TypeMap, which knows the types that come with pgx, can be read,
// and everything that would reach a database fails. So do the large objects. pgx
// makes neither in any other way than by speaking the protocol, so that is what
// it gets.
func hollow(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, pgx.LargeObjects, error) {
	ours, theirs := net.Pipe()
	c := config.Copy()
	c.TLSConfig, c.Fallbacks, c.Tracer = nil, nil, nil
	c.ValidateConnect, c.AfterConnect = nil, nil
	c.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"hollow"}, nil }
	c.DialFunc = func(context.Context, string, string) (net.Conn, error) { return theirs, nil }
	answered := make(chan error, 1)
	go func() { answered <- welcome(ours) }()
	var dead pgx.LargeObjects
	conn, err := pgx.ConnectConfig(ctx, c)
	if err == nil {
		var tx pgx.Tx
		if tx, err = conn.Begin(ctx); err == nil {
			dead = tx.LargeObjects()
		}
		_ = conn.Close(ctx)
	}
	_ = ours.Close()
	if greeting := <-answered; greeting != nil && err == nil {
		err = greeting
	}
	if err != nil {
		return nil, dead, fmt.Errorf("pgxv5: a connection without a server: %w", err)
	}
	return conn, dead, nil
}

// welcome lets a client in, and says yes to everything until it leaves.
func welcome(conn net.Conn) error {
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return err
	}
	server.Send(&pgproto3.AuthenticationOk{})
	server.Send(&pgproto3.BackendKeyData{SecretKey: make([]byte, 4)})
	server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := server.Flush(); err != nil {
		return err
	}
	for {
		message, err := server.Receive()
		if err != nil {
			return nil //nolint:nilerr // it has left
		}
		if _, ok := message.(*pgproto3.Query); ok {
			server.Send(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")})
			server.Send(&pgproto3.ReadyForQuery{TxStatus: 'T'})
			if err := server.Flush(); err != nil {
				return err
			}
		}
	}
}
