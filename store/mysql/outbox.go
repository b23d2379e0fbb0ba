// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

const (
	messageColumns = "message_id, source, type, subject, time, content_type, data, header"
	// flushBytes is how long one INSERT of messages may become before another one
	// is begun.
	flushBytes = 1 << 20
	// buckets is how many rows reprise_outbox_bucket has.
	buckets = 256
)

// Enqueue implements store.Outbox. A *sql.Tx that is not the driver's belongs to
// the same database and writes the messages at once.
func (d *Driver) Enqueue(ctx context.Context, tx *sql.Tx, messages ...reprise.Message) error {
	if s, ok := d.lent.Load(tx); ok {
		return s.(*session).enqueue(messages)
	}
	statements, err := d.server.insertMessages(messages)
	if err != nil {
		return err
	}
	for _, query := range statements {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return classify(err)
		}
	}
	return nil
}

// enqueue keeps messages for the flush.
func (s *session) enqueue(messages []reprise.Message) error {
	if err := s.tx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushed {
		return fmt.Errorf("%w: messages enqueued after the handler has returned", store.ErrTxMisuse)
	}
	s.messages = append(s.messages, messages...)
	return nil
}

// flush returns the statements that write the enqueued messages (rule O1).
func (s *session) flush() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = true
	return s.d.server.insertMessages(s.messages)
}

// insertMessages makes as few INSERTs of messages as possible, behind the locks
// of their subjects.
func (s server) insertMessages(messages []reprise.Message) (statements []string, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	if lock := s.lockSubjects(messages); lock != "" {
		statements = append(statements, lock)
	}
	var b strings.Builder
	for _, m := range messages {
		if err := fits("an attribute of a message", 255, m.ID, m.Source, m.Type, m.Subject, m.ContentType); err != nil {
			return nil, err
		}
		data := m.Data
		if data == nil {
			data = []byte{}
		}
		if b.Len() > flushBytes {
			statements = append(statements, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString("INSERT INTO reprise_outbox (" + messageColumns + ", enqueued_at) VALUES ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(render("(?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
			m.ID, m.Source, m.Type, m.Subject, m.Time.UnixMicro(), m.ContentType, data, header(record.EncodeAttributes(m.Header))))
	}
	return append(statements, b.String()), nil
}

// lockSubjects returns the statement that takes the locks of the messages'
// subjects, always in the same order. In a cluster a lock is known to its own
// node only; there the row is changed, so that of two transactions that do so at
// once one is refused at COMMIT.
func (s server) lockSubjects(messages []reprise.Message) string {
	var numbers []int
	for _, m := range messages {
		if m.Subject != "" {
			h := fnv.New32a()
			_, _ = h.Write([]byte(m.Subject))
			numbers = append(numbers, int(h.Sum32()%buckets))
		}
	}
	if len(numbers) == 0 {
		return ""
	}
	slices.Sort(numbers)
	places := make([]string, 0, len(numbers))
	for _, n := range slices.Compact(numbers) {
		places = append(places, fmt.Sprint(n))
	}
	in := "bucket IN (" + strings.Join(places, ", ") + ") ORDER BY bucket"
	if s.galera {
		return "UPDATE reprise_outbox_bucket SET n = n + 1 WHERE " + in
	}
	return "SELECT bucket FROM reprise_outbox_bucket WHERE " + in + " FOR UPDATE"
}

// Backlog implements store.Relay.
func (r *relay) Backlog(ctx context.Context) (b store.Backlog, err error) {
	err = r.d.query(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		b.Waiting, b.Retry, b.Blocked, b.Parked = int(c.Number()), int(c.Number()), int(c.Number()), int(c.Number())
		waiting, held := c.Time(), c.Time()
		b.Oldest = waiting
		if waiting.IsZero() || !held.IsZero() && held.Before(waiting) {
			b.Oldest = held
		}
		return c.Err()
	}, `SELECT
		(SELECT COUNT(*) FROM reprise_outbox WHERE id > 0),
		(SELECT COUNT(*) FROM reprise_outbox_hold WHERE state = 'retry'),
		(SELECT COUNT(*) FROM reprise_outbox_hold WHERE state = 'blocked'),
		(SELECT COUNT(*) FROM reprise_outbox_hold WHERE state = 'parked'),
		(SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', enqueued_at) FROM reprise_outbox WHERE id > 0 ORDER BY id LIMIT 1),
		(SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(o.enqueued_at)) FROM reprise_outbox_hold AS h JOIN reprise_outbox AS o ON o.id = h.id)`)
	return b, err
}
