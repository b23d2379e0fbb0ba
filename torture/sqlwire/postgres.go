// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// Postgres is version 3 of PostgreSQL's protocol, as of PostgreSQL 7.4 and later,
// without encryption: a client that asks for it is told that there is none.
var Postgres = Protocol{
	name:   "postgres",
	serve:  servePostgres,
	client: readFrontend,
	server: func() reader { return readTyped },
}

// Types of messages (PostgreSQL documentation, "Message Formats").
const (
	// From the client. A message without a type opens a connection.
	msgOpen     = 0
	msgBind     = 'B'
	msgClose    = 'C'
	msgDescribe = 'D'
	msgExecute  = 'E'
	msgFlush    = 'H'
	msgParse    = 'P'
	msgQuery    = 'Q'
	msgSync     = 'S'
	msgEnd      = 'X'
	msgCopyDone = 'c'
	msgCopyFail = 'f'

	// From the server.
	msgParseComplete   = '1'
	msgBindComplete    = '2'
	msgCloseComplete   = '3'
	msgCommandComplete = 'C'
	msgError           = 'E'
	msgCopyIn          = 'G'
	msgEmptyQuery      = 'I'
	msgBackendKey      = 'K'
	msgAuthentication  = 'R'
	msgRowDescription  = 'T'
	msgReady           = 'Z'
	msgNoData          = 'n'
	msgSuspended       = 's'
)

// postgres is one session.
type postgres struct {
	*link
	// statements and portals have the SQL text of each by its name.
	statements, portals map[string]string
	secret              []byte
}

func servePostgres(ctx context.Context, l *link) error {
	s := &postgres{link: l, statements: map[string]string{}, portals: map[string]string{}}
	if err := s.start(ctx); err != nil {
		return err
	}
	for {
		f, err := s.fromClient()
		if err != nil {
			return err
		}
		switch f.kind {
		case msgEnd:
			return s.toServer(f)
		case msgQuery:
			err = s.query(ctx, f)
		default:
			err = s.pipeline(ctx, f)
		}
		if err != nil {
			return err
		}
	}
}

// query carries a simple query.
func (s *postgres) query(ctx context.Context, f frame) error {
	var q pgproto3.Query
	if err := q.Decode(f.body); err != nil {
		return err
	}
	fault, err := s.at(crashpoint.Before, q.String)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.refuse(fault.Error, q.String)
	}
	if err := s.toServer(f); err != nil {
		return err
	}
	if err := s.cancel(ctx, fault); err != nil {
		return err
	}
	answers, err := s.untilReady(nil)
	if err != nil {
		return err
	}
	return s.after(q.String, answers)
}

// after asks the plan once more, now that the server has answered, and passes the
// answers on if it may.
func (s *postgres) after(statement string, answers []frame) error {
	fault, err := s.at(crashpoint.After, statement)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.endSession(fault.Error)
	}
	return s.toClient(answers...)
}

// untilReady reads the server's answers to the end and appends them to those that
// are there.
func (s *postgres) untilReady(answers []frame) ([]frame, error) {
	for {
		f, err := s.fromServer()
		if err != nil {
			// What the server said last, such as why it closes, is the client's.
			_ = s.toClient(answers...)
			return nil, err
		}
		answers = append(answers, f)
		switch f.kind {
		case msgReady:
			return answers, nil
		case msgCopyIn:
			if answers, err = s.copyIn(answers); err != nil {
				return nil, err
			}
		}
	}
}

// copyIn hands the server what it asked the client for. Nothing of it is a
// boundary: the server answers when it has all.
func (s *postgres) copyIn(answers []frame) ([]frame, error) {
	if err := s.toClient(answers...); err != nil {
		return nil, err
	}
	for {
		f, err := s.fromClient()
		if err != nil {
			return nil, err
		}
		if err := s.toServer(f); err != nil {
			return nil, err
		}
		if f.kind == msgCopyDone || f.kind == msgCopyFail {
			return answers[:0], nil
		}
	}
}

// cancel carries out a Cancel of what was just sent.
func (s *postgres) cancel(ctx context.Context, f Fault) error {
	if f.Kind != Cancel {
		return nil
	}
	if f.Release != nil {
		select {
		case <-f.Release:
		case <-ctx.Done():
			return errOver
		}
	}
	raw, err := (&pgproto3.CancelRequest{ProcessID: s.session, SecretKey: s.secret}).Encode(nil)
	if err != nil {
		return err
	}
	if err := s.ring(ctx, raw); err != nil {
		return err
	}
	s.proxy.count(Cancel)
	return nil
}

// refuse has the server fail a simple query with an error: the server itself
// raises it, so that what becomes of the transaction is the server's doing.
func (s *postgres) refuse(e ServerError, query string) error {
	if e.EndsSession {
		return s.endSession(e)
	}
	if begins(query) {
		if _, err := s.call("BEGIN"); err != nil {
			return err
		}
	}
	answers, err := s.call(raise(e))
	if err != nil {
		return err
	}
	if ends(query) {
		if answers, err = s.rolledBack(answers); err != nil {
			return err
		}
	}
	s.proxy.count(Answer)
	return s.toClient(answers...)
}

// rolledBack ends the transaction that a failed COMMIT has ended, and says so in
// the last of the answers.
func (s *postgres) rolledBack(answers []frame) ([]frame, error) {
	end, err := s.call("ROLLBACK")
	if err != nil {
		return nil, err
	}
	answers[len(answers)-1] = end[len(end)-1]
	return answers, nil
}

// call sends the server a simple query of the proxy's own.
func (s *postgres) call(query string) ([]frame, error) {
	if err := s.toServer(encode(&pgproto3.Query{String: query})); err != nil {
		return nil, err
	}
	return s.untilReady(nil)
}

// endSession answers an error after which the server hangs up.
func (s *postgres) endSession(e ServerError) error {
	s.proxy.count(Answer)
	_ = s.toClient(encode(&pgproto3.ErrorResponse{
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: e.SQLState, Message: e.Message,
	}))
	return errOver
}

// raise is a statement that fails with an error.
func raise(e ServerError) string {
	return fmt.Sprintf("DO $sqlwire$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = '%s'; END $sqlwire$", e.SQLState, e.Message)
}

// encode makes a frame of a message of the proxy's own.
func encode(m pgproto3.Message) frame {
	raw, err := m.Encode(nil)
	if err != nil {
		panic(err) // only a message of more than 1 GiB can't be encoded
	}
	return frame{kind: raw[0], raw: raw, body: raw[5:]}
}

// readFrontend reads the messages of a client: those that open the connection
// have no type.
func readFrontend() reader {
	opened := false
	return func(r *bufio.Reader) (frame, error) {
		if opened {
			return readTyped(r)
		}
		header := make([]byte, 4)
		if _, err := io.ReadFull(r, header); err != nil {
			return frame{}, err
		}
		raw, body, err := readN(r, header, int(binary.BigEndian.Uint32(header))-len(header))
		if err != nil || len(body) < 4 {
			return frame{}, io.ErrUnexpectedEOF
		}
		opened = binary.BigEndian.Uint16(body) == majorVersion
		return frame{kind: msgOpen, raw: raw, body: body}, nil
	}
}

// readTyped reads a message with a type.
func readTyped(r *bufio.Reader) (frame, error) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(r, header); err != nil {
		return frame{}, err
	}
	raw, body, err := readN(r, header, int(binary.BigEndian.Uint32(header[1:]))-4)
	return frame{kind: header[0], raw: raw, body: body}, err
}
