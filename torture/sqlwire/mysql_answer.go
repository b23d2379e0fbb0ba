// SPDX-License-Identifier: Apache-2.0

package sqlwire

import "encoding/binary"

// First bytes of answers.
const (
	packetOK       = 0x00
	packetMore     = 0x01 // AuthMoreData
	packetInfile   = 0xfb
	packetEOF      = 0xfe
	packetError    = 0xff
	fastAuthOK     = 0x03
	maxEOFPacket   = 9 // a longer packet that begins with 0xfe is a row
	comFieldList   = 0x04
	statusMore     = 0x0008 // SERVER_MORE_RESULTS_EXISTS
	statusCursor   = 0x0040 // SERVER_STATUS_CURSOR_EXISTS
	prepareHeaders = 9      // of an answer to COM_STMT_PREPARE: status, number, columns, parameters
)

// answers reads the whole answer to a command.
func (s *mysql) answers(command frame) ([]frame, error) {
	a := &reading{session: s}
	switch command.kind {
	case comQuery, comExecute, comBulkExecute:
		a.results()
	case comPrepare:
		a.prepared(string(command.body[1:]))
	case comFetch, comFieldList:
		a.untilEOF()
	case comChangeUser:
		a.changedUser()
	default: // OK, EOF or an error, or a text
		a.next()
	}
	if a.err != nil {
		_ = s.toClient(a.frames...)
	}
	return a.frames, a.err
}

// reading is an answer that is being read. After an error its methods do nothing.
type reading struct {
	session *mysql
	frames  []frame
	err     error
}

// next reads one packet.
func (a *reading) next() frame {
	if a.err != nil {
		return frame{}
	}
	var f frame
	if f, a.err = a.session.fromServer(); a.err == nil {
		a.frames = append(a.frames, f)
	}
	return f
}

// results reads results until one says that it is the last.
func (a *reading) results() {
	for more := true; more && a.err == nil; {
		switch f := a.next(); {
		case a.err != nil:
		case f.kind == packetError:
			more = false
		case f.kind == packetOK:
			more = okStatus(f.body)&statusMore != 0
		case f.kind == packetInfile:
			more = a.infile()
		default:
			more = a.rows()
		}
	}
}

// rows reads the columns and rows of one result.
func (a *reading) rows() (more bool) {
	columns := a.untilEOF()
	if columns.kind == packetError {
		return false
	}
	if eofStatus(columns.body)&statusCursor != 0 {
		return false // the rows are fetched
	}
	end := a.untilEOF()
	return end.kind != packetError && eofStatus(end.body)&statusMore != 0
}

// infile hands the server the file that it asked the client for.
func (a *reading) infile() (more bool) {
	s := a.session
	if a.err = s.toClient(a.frames...); a.err != nil {
		return false
	}
	a.frames = nil
	for {
		f, err := s.fromClient()
		if err == nil {
			err = s.toServer(f)
		}
		if err != nil {
			a.err = err
			return false
		}
		if len(f.body) == 0 {
			break
		}
	}
	end := a.next()
	return a.err == nil && end.kind == packetOK && okStatus(end.body)&statusMore != 0
}

// untilEOF reads packets up to EOF or an error, which it returns.
func (a *reading) untilEOF() frame {
	for {
		f := a.next()
		if a.err != nil || f.kind == packetError || f.kind == packetEOF && len(f.body) < maxEOFPacket {
			return f
		}
	}
}

// prepared reads the answer to COM_STMT_PREPARE.
func (a *reading) prepared(text string) {
	f := a.next()
	if a.err != nil || f.kind != packetOK || len(f.body) < prepareHeaders {
		return
	}
	a.session.statements[binary.LittleEndian.Uint32(f.body[1:])] = text
	columns, parameters := binary.LittleEndian.Uint16(f.body[5:]), binary.LittleEndian.Uint16(f.body[7:])
	for _, n := range []uint16{parameters, columns} {
		if n > 0 {
			a.untilEOF()
		}
	}
}

// changedUser reads the answer to COM_CHANGE_USER, between which the client may
// have to authenticate.
func (a *reading) changedUser() {
	s := a.session
	for {
		f := a.next()
		if a.err != nil || f.kind == packetOK || f.kind == packetError {
			return
		}
		if a.err = s.toClient(a.frames...); a.err != nil {
			return
		}
		a.frames = nil
		if f.kind == packetMore && len(f.body) == 2 && f.body[1] == fastAuthOK {
			continue
		}
		reply, err := s.fromClient()
		if err == nil {
			err = s.toServer(reply)
		}
		if a.err = err; err != nil {
			return
		}
	}
}

// okStatus is the status in an OK packet: after two integers of variable length.
func okStatus(body []byte) uint16 {
	at := 1
	for range 2 {
		if at >= len(body) {
			return 0
		}
		switch body[at] {
		case 0xfc:
			at += 3
		case 0xfd:
			at += 4
		case 0xfe:
			at += 9
		default:
			at++
		}
	}
	return status(body, at)
}

// eofStatus is the status in an EOF packet: after the number of warnings.
func eofStatus(body []byte) uint16 { return status(body, 3) }

func status(body []byte, at int) uint16 {
	if len(body) < at+2 {
		return 0
	}
	return binary.LittleEndian.Uint16(body[at:])
}
