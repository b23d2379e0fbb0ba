// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/internal/pg"
)

// Enqueue implements store.Outbox. A pgx.Tx that is not the driver's belongs to
// the same database and writes the messages at once. A message enqueued in a
// savepoint belongs to the whole transaction.
func (d *Driver) Enqueue(ctx context.Context, lent pgx.Tx, messages ...reprise.Message) error {
	switch lent := lent.(type) {
	case *tx:
		return lent.enqueue(messages)
	case *savepoint:
		return lent.t.enqueue(messages)
	}
	statements, err := sending(messages, nil)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	for _, s := range statements {
		b.Queue(s.sql, s.args...)
	}
	return pg.Classify(lent.SendBatch(ctx, b).Close())
}

// sending are the statements that write messages, and the record that they come
// with, if there is one.
func sending(messages []reprise.Message, record *held) (statements []held, err error) {
	locks := pg.SubjectLocks(messages)
	if len(locks) > 1 { // before all messages, and in their order
		for _, lock := range locks {
			statements = append(statements, held{sql: pg.LockSubjectSQL, args: []any{lock}})
		}
		locks = nil
	}
	for _, m := range messages {
		args, err := pg.MessageArgs(m)
		if err != nil {
			return nil, err
		}
		// The first message has the only lock there is, whose subject ever it is.
		if len(locks) > 0 {
			args, locks = append(args, locks[0]), nil
		} else {
			args = append(args, nil)
		}
		send := held{sql: pg.SendSQL, args: args}
		if record != nil {
			send = held{sql: pg.RecordAndSendSQL, args: append(record.args, args...), read: record.read}
			record = nil
		}
		statements = append(statements, send)
	}
	if record != nil {
		statements = append(statements, *record)
	}
	return statements, nil
}

// enqueue keeps messages for the last message to the server.
func (t *tx) enqueue(messages []reprise.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return fmt.Errorf("%w: messages enqueued after the handler has returned", store.ErrTxMisuse)
	}
	if err := t.err(); err != nil {
		return err
	}
	t.messages = append(t.messages, messages...)
	return nil
}

// Accept implements store.Inbox. lent may be the driver's or any other
// transaction of the same database.
func (d *Driver) Accept(ctx context.Context, lent pgx.Tx, r store.Receipt) (fresh bool, stored [32]byte, err error) {
	return pg.Accept(ctx, plain{lent}, r)
}
