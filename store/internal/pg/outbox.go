// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store/internal/record"
)

// subjectLock is the advisory lock under which messages of a subject get their
// ids. It is held until COMMIT, so that the order of ids is the order of commits.
func subjectLock(subject string) int64 {
	h := fnv.New64a()
	h.Write([]byte("reprise outbox subject\x00"))
	h.Write([]byte(subject))
	return int64(h.Sum64())
}

// SubjectLocks returns the locks of the subjects of messages, in the order in
// which they must be taken: transactions that take them in one order don't wait
// for each other in a circle.
func SubjectLocks(messages []reprise.Message) []int64 {
	var locks []int64
	for _, m := range messages {
		if m.Subject != "" {
			locks = append(locks, subjectLock(m.Subject))
		}
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// lockTimeout bounds the wait of FlushText and SendText for a subject that another
// transaction has: they travel with COMMIT, which no context ends.
const lockTimeout = "10s"

// LockSubjectSQL takes one of SubjectLocks.
const LockSubjectSQL = "SELECT pg_advisory_xact_lock($1::bigint)"

const messageInto = "INSERT INTO reprise_outbox (message_id, source, type, subject, time, content_type, data, header) SELECT "

// SendSQL inserts a message, behind one of SubjectLocks, if there is one: that is
// had before the message gets its id. The parameters are those of MessageArgs and
// the lock.
const SendSQL = messageInto + "$1::text, $2::text, $3::text, $4::text, $5::timestamptz, $6::text, $7::bytea, $8::text " +
	"WHERE $9::bigint IS NULL OR pg_advisory_xact_lock($9::bigint) IS NOT NULL"

// MessageArgs are the arguments of SendSQL but the lock; the error says why a
// message can't be stored.
func MessageArgs(m reprise.Message) ([]any, error) {
	header, err := checkMessage(m)
	if err != nil {
		return nil, err
	}
	return []any{
		m.ID, m.Source, m.Type, m.Subject, m.Time.UTC().Format("2006-01-02 15:04:05.000000Z07:00"), m.ContentType,
		payload(m), text(header),
	}, nil
}

func payload(m reprise.Message) []byte {
	if m.Data == nil {
		return []byte{}
	}
	return m.Data
}

// checkMessage returns the header as it is stored.
func checkMessage(m reprise.Message) (header string, err error) {
	for _, t := range []struct{ what, value string }{
		{"message id", m.ID}, {"message source", m.Source}, {"message type", m.Type}, {"message subject", m.Subject},
		{"message content type", m.ContentType},
	} {
		if err := checkText(t.what, t.value); err != nil {
			return "", err
		}
	}
	if y := m.Time.UTC().Year(); y < 1 || y > 9999 {
		return "", fmt.Errorf("postgres: the time of message %q is in the year %d; it must be in 1 to 9999", m.ID, y)
	}
	return record.EncodeAttributes(m.Header), nil
}

// FlushText writes the INSERT of messages for the simple protocol, with the locks
// of their subjects before it: several statements, each with its semicolon.
func FlushText(messages []reprise.Message) (string, error) {
	if len(messages) == 0 {
		return "", nil
	}
	b := make([]byte, 0, 512*len(messages))
	if locks := SubjectLocks(messages); len(locks) > 0 {
		b = append(b, "SELECT set_config('lock_timeout', '"+lockTimeout+"', true), "...)
		b = append(appendLocks(b, locks), ';')
	}
	b = append(b, "INSERT INTO reprise_outbox (message_id, source, type, subject, time, content_type, data, header) VALUES "...)
	for i, m := range messages {
		literals, err := messageLiterals(m)
		if err != nil {
			return "", err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '('), bytes.Join(literals, []byte(","))...), ')')
	}
	return string(append(b, ';')), nil
}

func appendLocks(b []byte, locks []int64) []byte {
	for i, lock := range locks {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = quoteInt(append(b, "pg_advisory_xact_lock"...), lock)
	}
	return b
}

// messageLiterals are MessageArgs for the simple protocol.
func messageLiterals(m reprise.Message) ([][]byte, error) {
	header, err := checkMessage(m)
	if err != nil {
		return nil, err
	}
	last := []byte("NULL")
	if header != "" {
		last = quoteText(header)
	}
	return [][]byte{
		quoteText(m.ID), quoteText(m.Source), quoteText(m.Type), quoteText(m.Subject), quoteTime(nil, m.Time),
		quoteText(m.ContentType), quoteBytes(nil, payload(m)), last,
	}, nil
}

// messageColumns are the columns that a stored message reads.
const messageColumns = "o.message_id, o.source, o.type, o.subject, o.time, o.content_type, o.data, o.header"

// stored is a message on its way out of a row.
type stored struct {
	m      reprise.Message
	at     time.Time
	header *string
}

func (s *stored) dest() []any {
	return []any{&s.m.ID, &s.m.Source, &s.m.Type, &s.m.Subject, &s.at, &s.m.ContentType, &s.m.Data, &s.header}
}

// message returns what could be read, and why not all of it.
func (s *stored) message() (reprise.Message, error) {
	s.m.Time = s.at.UTC()
	if s.header == nil {
		return s.m, nil
	}
	header, err := record.DecodeAttributes(*s.header)
	if err != nil {
		return s.m, fmt.Errorf("postgres: header of message %q: %w", s.m.ID, err)
	}
	s.m.Header = header
	return s.m, nil
}
