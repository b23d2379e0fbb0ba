// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/record"
)

const (
	messageColumns = "message_id, source, type, subject, time, content_type, data, header, enqueued_at"
	// flushRows is how many messages one INSERT takes: nine parameters each.
	flushRows = 32
)

// Enqueue implements store.Outbox. A *sql.Tx that is not the driver's belongs to
// the same database and writes the messages at once.
func (d *Driver) Enqueue(ctx context.Context, tx *sql.Tx, messages ...reprise.Message) error {
	if s := d.writer.lent.Load(); s != nil && s.tx.SQL() == tx {
		return s.enqueue(messages)
	}
	return eachFlush(messages, func(query string, args []any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return classify(duplicate(err))
	})
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

// flush writes the enqueued messages (rule O1).
func (s *session) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = true
	if len(s.messages) == 0 {
		return nil
	}
	s.batch.messages = true
	return eachFlush(s.messages, func(query string, args []any) error {
		_, err := s.conn.Exec(context.Background(), query, args...)
		return duplicate(err)
	})
}

// duplicate recognises what SQLite and the trigger on held messages say of a
// message whose identity is taken.
func duplicate(err error) error {
	if err != nil && strings.Contains(err.Error(), "reprise_outbox.source, reprise_outbox.message_id") {
		return fmt.Errorf("%w: give each event an id of its own, or none: %w", store.ErrDuplicateMessage, err)
	}
	return err
}

// eachFlush makes as few INSERTs of messages as possible.
func eachFlush(messages []reprise.Message, insert func(query string, args []any) error) error {
	at := now().UnixMicro()
	for len(messages) > 0 {
		n := min(len(messages), flushRows)
		args := make([]any, 0, 9*n)
		for _, m := range messages[:n] {
			data := m.Data
			if data == nil {
				data = []byte{}
			}
			args = append(args, m.ID, m.Source, m.Type, m.Subject, m.Time.UnixMicro(), m.ContentType, data, header(record.EncodeAttributes(m.Header)), at)
		}
		if err := insert(flushSQL[n-1], args); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return nil
}

// flushSQL holds the INSERT of n messages at n-1.
var flushSQL = func() (queries [flushRows]string) {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	for i := range queries {
		queries[i] = "INSERT INTO reprise_outbox (" + messageColumns + ") VALUES " + row + strings.Repeat(", "+row, i)
	}
	return queries
}()

// Backlog implements store.Relay.
func (r *relay) Backlog(ctx context.Context) (b store.Backlog, err error) {
	var waiting, held int64
	err = queryRows(ctx, r.d.db, func(row []driver.Value) error {
		c := record.Read(row)
		b.Waiting, b.Retry, b.Blocked, b.Parked = int(c.Number()), int(c.Number()), int(c.Number()), int(c.Number())
		waiting, held = c.Number(), c.Number()
		return c.Err()
	}, `SELECT
		(SELECT count(*) FROM reprise_outbox WHERE id > position),
		(SELECT count(*) FROM reprise_outbox_hold WHERE state = 'retry'),
		(SELECT count(*) FROM reprise_outbox_hold WHERE state = 'blocked'),
		(SELECT count(*) FROM reprise_outbox_hold WHERE state = 'parked'),
		(SELECT enqueued_at FROM reprise_outbox WHERE id > position ORDER BY id LIMIT 1),
		(SELECT min(enqueued_at) FROM reprise_outbox_hold)
		FROM reprise_outbox_slot WHERE slot = 0`)
	if oldest := min(orLast(waiting), orLast(held)); oldest != orLast(0) {
		c := record.Read([]driver.Value{oldest})
		b.Oldest = c.Time()
	}
	return b, err
}
