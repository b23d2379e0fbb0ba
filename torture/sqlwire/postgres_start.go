// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"context"
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// What a message without a type asks for (PostgreSQL documentation, "Message
// Formats"): a session of this version, or one of the three others.
const (
	majorVersion   = 3
	cancelRequest  = 80877102
	sslRequest     = 80877103
	gssencRequest  = 80877104
	noEncryption   = 'N'
	authentication = 0  // AuthenticationOk, after which the client has nothing to say
	saslFinal      = 12 // AuthenticationSASLFinal, the same
)

// connect names the boundary at which a session starts.
const connect = "CONNECT"

// start carries the messages that open a session.
func (s *postgres) start(ctx context.Context) error {
	for {
		f, err := s.fromClient()
		if err != nil {
			return err
		}
		if f.kind != msgOpen {
			return errOver
		}
		switch binary.BigEndian.Uint32(f.body) {
		case sslRequest, gssencRequest:
			if err := s.toClient(frame{raw: []byte{noEncryption}}); err != nil {
				return err
			}
		case cancelRequest:
			// The client cancels on a connection of its own; its answer is the end.
			_ = s.ring(ctx, f.raw)
			return errOver
		default:
			return s.open(f)
		}
	}
}

// open carries the start of a session until it is ready.
func (s *postgres) open(f frame) error {
	fault, err := s.at(crashpoint.Before, connect)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.endSession(fault.Error)
	}
	if err := s.toServer(f); err != nil {
		return err
	}
	var answers []frame
	for {
		f, err := s.fromServer()
		if err != nil {
			_ = s.toClient(answers...)
			return err
		}
		answers = append(answers, f)
		switch f.kind {
		case msgAuthentication:
			if answers, err = s.authenticate(f, answers); err != nil {
				return err
			}
		case msgBackendKey:
			var k pgproto3.BackendKeyData
			if err := k.Decode(f.body); err != nil {
				return err
			}
			s.session, s.secret = k.ProcessID, append([]byte(nil), k.SecretKey...)
		case msgReady:
			return s.after(connect, answers)
		}
	}
}

// authenticate passes a question of the server on, and the client's reply back.
func (s *postgres) authenticate(f frame, answers []frame) ([]frame, error) {
	if len(f.body) < 4 {
		return nil, errOver
	}
	if step := binary.BigEndian.Uint32(f.body); step == authentication || step == saslFinal {
		return answers, nil
	}
	if err := s.toClient(answers...); err != nil {
		return nil, err
	}
	reply, err := s.fromClient()
	if err != nil {
		return nil, err
	}
	return nil, s.toServer(reply)
}
