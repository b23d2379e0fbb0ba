// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// MySQL is the protocol of MySQL 4.1 and later and of MariaDB, without encryption
// and compression: the proxy takes these, and what else would change the form of
// an answer, out of what the server offers.
var MySQL = Protocol{
	name:   "mysql",
	serve:  serveMySQL,
	client: func() reader { return readPacket },
	server: func() reader { return readPacket },
}

// Commands (MySQL documentation, "Command Phase"; MariaDB, "Client/Server
// Protocol").
const (
	comQuit         = 0x01
	comInitDB       = 0x02
	comQuery        = 0x03
	comPing         = 0x0e
	comChangeUser   = 0x11
	comPrepare      = 0x16
	comExecute      = 0x17
	comSendLongData = 0x18
	comStmtClose    = 0x19
	comStmtReset    = 0x1a
	comFetch        = 0x1c
	comReset        = 0x1f
	comBulkExecute  = 0xfa
)

// names are what commands without a text of their own are called in a Boundary.
var names = map[byte]string{
	comInitDB: "USE", comPing: "PING", comChangeUser: "CHANGE USER", comStmtReset: "RESET STATEMENT", comReset: "RESET CONNECTION",
}

// mysql is one session.
type mysql struct {
	*link
	// statements has the text of prepared statements by their number.
	statements map[uint32]string
}

func serveMySQL(_ context.Context, l *link) error {
	s := &mysql{link: l, statements: map[uint32]string{}}
	if err := s.start(); err != nil {
		return err
	}
	for {
		f, err := s.fromClient()
		if err != nil {
			return err
		}
		switch f.kind {
		case comQuit:
			return s.toServer(f)
		case comSendLongData, comStmtClose: // have no answer
			err = s.toServer(f)
		default:
			err = s.command(f)
		}
		if err != nil {
			return err
		}
	}
}

// command carries one command that has an answer.
func (s *mysql) command(f frame) error {
	statement := s.text(f)
	fault, err := s.at(crashpoint.Before, statement)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.refuse(fault.Error, statement, f)
	}
	if fault.Kind == Cancel {
		panic("sqlwire: MySQL's protocol has no cancellation; use KILL QUERY in the plan")
	}
	if err := s.toServer(f); err != nil {
		return err
	}
	answers, err := s.answers(f)
	if err != nil {
		return err
	}
	return s.after(statement, answers)
}

// after asks the plan once more, now that the server has answered, and passes the
// answers on if it may.
func (s *mysql) after(statement string, answers []frame) error {
	fault, err := s.at(crashpoint.After, statement)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.answer(fault.Error, answers[0].sequence())
	}
	return s.toClient(answers...)
}

// text is what a command says.
func (s *mysql) text(f frame) string {
	switch f.kind {
	case comQuery:
		return string(f.body[1:])
	case comPrepare:
		return "PREPARE " + string(f.body[1:])
	case comExecute, comBulkExecute, comFetch:
		if len(f.body) >= 5 {
			return s.statements[binary.LittleEndian.Uint32(f.body[1:])]
		}
	}
	if name, ok := names[f.kind]; ok {
		return name
	}
	return fmt.Sprintf("COMMAND %#02x", f.kind)
}

// refuse answers an error in the place of a command, and leaves the server in the
// state that it has after that error.
func (s *mysql) refuse(e ServerError, statement string, f frame) error {
	switch {
	case e.EndsSession:
	case e.EndsTransaction:
		if err := s.call("ROLLBACK"); err != nil {
			return err
		}
	case begins(statement):
		if err := s.call("START TRANSACTION"); err != nil {
			return err
		}
	}
	return s.answer(e, f.sequence()+1)
}

// answer gives the client an error.
func (s *mysql) answer(e ServerError, sequence byte) error {
	s.proxy.count(Answer)
	body := binary.LittleEndian.AppendUint16([]byte{packetError}, e.Number)
	body = append(body, '#')
	body = append(body, e.SQLState...)
	body = append(body, e.Message...)
	if err := s.toClient(packet(sequence, body)); err != nil {
		return err
	}
	if e.EndsSession {
		return errOver
	}
	return nil
}

// call sends the server a query of the proxy's own and drops the answer.
func (s *mysql) call(query string) error {
	f := packet(0, append([]byte{comQuery}, query...))
	if err := s.toServer(f); err != nil {
		return err
	}
	_, err := s.answers(f)
	return err
}

// start carries the messages that open a session. Its boundary begins with the
// client's name and ends with the server's welcome.
func (s *mysql) start() error {
	greeting, err := s.fromServer()
	if err != nil {
		return err
	}
	if greeting.kind == packetError {
		return s.toClient(greeting)
	}
	if s.session, err = simplify(greeting.body); err != nil {
		return err
	}
	if err := s.toClient(greeting); err != nil {
		return err
	}
	login, err := s.fromClient()
	if err != nil {
		return err
	}
	fault, err := s.at(crashpoint.Before, connect)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.answer(fault.Error, login.sequence()+1)
	}
	if err := s.toServer(login); err != nil {
		return err
	}
	for {
		f, err := s.fromServer()
		if err != nil {
			return err
		}
		switch f.kind {
		case packetOK:
			return s.after(connect, []frame{f})
		case packetError:
			return s.toClient(f)
		}
		if err := s.toClient(f); err != nil {
			return err
		}
		if f.kind == packetMore && len(f.body) == 2 && f.body[1] == fastAuthOK {
			continue // the client has nothing to say to it
		}
		reply, err := s.fromClient()
		if err != nil {
			return err
		}
		if err := s.toServer(reply); err != nil {
			return err
		}
	}
}

// Capabilities that a session through the proxy does without, because they change
// what stands on the wire.
const (
	capCompress         = 1 << 5
	capSSL              = 1 << 11
	capOptionalMetadata = 1 << 25
	capDeprecateEOF     = 1 << 24
	capZstd             = 1 << 26
	withheld            = capCompress | capSSL | capOptionalMetadata | capDeprecateEOF | capZstd
)

// simplify takes capabilities out of a server's greeting, in place, and returns
// the number of the connection.
func simplify(body []byte) (session uint32, err error) {
	version := bytes.IndexByte(body, 0)
	// The version is followed by the number (4 bytes), a salt (8) and a zero (1);
	// then capabilities (2), character set (1), status (2), more capabilities (2), the
	// salt's length (1), 6 reserved bytes, and MariaDB's own capabilities (4).
	at := version + 1 + 4 + 8 + 1
	if version < 0 || len(body) < at+18 {
		return 0, fmt.Errorf("sqlwire: a greeting of %d bytes", len(body))
	}
	capabilities := uint32(binary.LittleEndian.Uint16(body[at:])) | uint32(binary.LittleEndian.Uint16(body[at+5:]))<<16
	capabilities &^= withheld
	binary.LittleEndian.PutUint16(body[at:], uint16(capabilities))
	binary.LittleEndian.PutUint16(body[at+5:], uint16(capabilities>>16))
	clear(body[at+14 : at+18])
	return binary.LittleEndian.Uint32(body[version+1:]), nil
}

// maxPacket is the longest packet; a message that is longer, or as long, is
// continued in the next one.
const maxPacket = 1<<24 - 1

// readPacket reads one message, which may be of several packets.
func readPacket(r *bufio.Reader) (frame, error) {
	var f frame
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(r, header); err != nil {
			return frame{}, err
		}
		length := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
		raw, body, err := readN(r, header, length)
		if err != nil {
			return frame{}, err
		}
		if f.raw == nil {
			f = frame{raw: raw, body: body}
		} else {
			f.raw, f.body = append(f.raw, raw...), append(bytes.Clone(f.body), body...)
		}
		if len(f.raw) > maxMessage {
			return frame{}, fmt.Errorf("sqlwire: a message of more than %d bytes", maxMessage)
		}
		if length < maxPacket {
			break
		}
	}
	if len(f.body) > 0 {
		f.kind = f.body[0]
	}
	return f, nil
}

// packet makes a message of the proxy's own.
func packet(sequence byte, body []byte) frame {
	raw := append([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), sequence}, body...)
	return frame{kind: body[0], raw: raw, body: raw[4:]}
}

// sequence is the number of a MySQL packet within its command.
func (f frame) sequence() byte { return f.raw[3] }
