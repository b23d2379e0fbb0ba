// SPDX-License-Identifier: Apache-2.0

package sqlwire

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/reprise-go/reprise/torture/crashpoint"
)

// pipeline is a run of extended-query messages up to its Sync. The proxy sends
// them on in parts, one part for each Execute, and has the server answer each part
// with a Flush; so a pipeline can be cut between its statements. The client gets
// all answers together, when its Sync was answered or where it asked by a Flush
// of its own.
type pipeline struct {
	// held has been read and not yet sent, answers has been answered and not yet
	// passed on.
	held, answers []frame
	// pending is how many answers the server owes for what was sent or is held.
	pending int
	// failed says that the server ignores everything until Sync, and aborted that
	// the statement which failed would have ended the transaction.
	failed, aborted bool
	// executed says that there was an Execute; prepared has the texts that were
	// parsed.
	executed bool
	prepared []string
}

// pipeline carries one pipeline, which begins with f.
func (s *postgres) pipeline(ctx context.Context, f frame) (err error) {
	var p pipeline
	for {
		switch f.kind {
		case msgEnd:
			return s.toServer(f)
		case msgSync:
			return s.sync(ctx, &p, f)
		case msgFlush:
			if err := s.settle(&p); err != nil {
				return err
			}
			err = s.toClient(p.answers...)
			p.answers = nil
		case msgExecute:
			err = s.execute(ctx, &p, f)
		default:
			err = s.note(&p, f)
		}
		if err != nil {
			return err
		}
		if f, err = s.fromClient(); err != nil {
			return err
		}
	}
}

// note holds a message that executes nothing, and remembers what it names.
func (s *postgres) note(p *pipeline, f frame) error {
	switch f.kind {
	case msgParse:
		var m pgproto3.Parse
		if err := m.Decode(f.body); err != nil {
			return err
		}
		s.statements[m.Name] = m.Query
		p.prepared = append(p.prepared, m.Query)
	case msgBind:
		var m pgproto3.Bind
		if err := m.Decode(f.body); err != nil {
			return err
		}
		s.portals[m.DestinationPortal] = s.statements[m.PreparedStatement]
	}
	p.add(f)
	return nil
}

// add holds a message and counts the answer that it will have.
func (p *pipeline) add(f frame) {
	p.held = append(p.held, f)
	switch f.kind {
	case msgParse, msgBind, msgClose, msgDescribe, msgExecute:
		p.pending++
	}
}

// answered says whether the message is the last of the answers to one message.
func answered(f frame) bool {
	switch f.kind {
	case msgParseComplete, msgBindComplete, msgCloseComplete, msgRowDescription, msgNoData,
		msgCommandComplete, msgEmptyQuery, msgSuspended:
		return true
	}
	return false
}

// execute carries one Execute, with everything that came before it.
func (s *postgres) execute(ctx context.Context, p *pipeline, f frame) error {
	var m pgproto3.Execute
	if err := m.Decode(f.body); err != nil {
		return err
	}
	p.executed = true
	if p.failed {
		p.held = append(p.held, f) // and the server will ignore it
		return nil
	}
	statement := s.portals[m.Portal]
	fault, err := s.at(crashpoint.Before, statement)
	if err != nil {
		return err
	}
	if fault.Kind == Answer {
		return s.refuseExecute(p, fault.Error, statement)
	}
	p.add(f)
	if err := s.send(p); err != nil {
		return err
	}
	if err := s.cancel(ctx, fault); err != nil {
		return err
	}
	return s.collect(p)
}

// refuseExecute has the server fail in the place of an Execute.
func (s *postgres) refuseExecute(p *pipeline, e ServerError, statement string) error {
	if e.EndsSession {
		return s.endSession(e)
	}
	if err := s.settle(p); err != nil || p.failed {
		return err
	}
	fail := pipeline{answers: nil}
	fail.add(encode(&pgproto3.Parse{Query: raise(e)}))
	fail.add(encode(&pgproto3.Bind{}))
	fail.add(encode(&pgproto3.Execute{}))
	if err := s.settle(&fail); err != nil {
		return err
	}
	p.failed, p.aborted = fail.failed, ends(statement)
	p.answers = append(p.answers, fail.answers[len(fail.answers)-1])
	s.proxy.count(Answer)
	return nil
}

// settle sends what is held and reads the answers to it.
func (s *postgres) settle(p *pipeline) error {
	if err := s.send(p); err != nil {
		return err
	}
	return s.collect(p)
}

func (s *postgres) send(p *pipeline) error {
	err := s.toServer(append(p.held, encode(&pgproto3.Flush{}))...)
	p.held = nil
	return err
}

// collect reads until the server owes nothing, or has failed.
func (s *postgres) collect(p *pipeline) error {
	for p.pending > 0 && !p.failed {
		f, err := s.fromServer()
		if err != nil {
			_ = s.toClient(p.answers...)
			return err
		}
		p.answers = append(p.answers, f)
		switch {
		case f.kind == msgError:
			p.failed = true
		case f.kind == msgCopyIn:
			if p.answers, err = s.copyIn(p.answers); err != nil {
				return err
			}
		case answered(f):
			p.pending--
		}
	}
	return nil
}

// sync carries the end of a pipeline.
func (s *postgres) sync(ctx context.Context, p *pipeline, f frame) error {
	statement := "SYNC"
	if !p.executed && len(p.prepared) > 0 {
		statement = "PREPARE " + strings.Join(p.prepared, "; ")
	}
	fault, err := s.at(crashpoint.Before, statement)
	if err != nil {
		return err
	}
	if fault.Kind == Answer && fault.Error.EndsSession {
		return s.endSession(fault.Error)
	}
	if fault.Kind == Answer && !p.failed {
		if err := s.refuseExecute(p, fault.Error, statement); err != nil {
			return err
		}
	}
	if err := s.toServer(append(p.held, f)...); err != nil {
		return err
	}
	if err := s.cancel(ctx, fault); err != nil {
		return err
	}
	answers, err := s.untilReady(p.answers)
	if err != nil {
		return err
	}
	if p.aborted {
		if answers, err = s.rolledBack(answers); err != nil {
			return err
		}
	}
	return s.after(statement, answers)
}
